#include "core/file_system.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/faulty_file_system.h"
#include "core/file_system_contract.h"
#include "core/memory_file_system.h"
#include "core/throttled_file_system.h"
#include "core/unique_id.h"

namespace varve {
namespace {

struct PosixSubject final : FileSystemSubject {
  PosixSubject() {
    fs = &posix_file_system();
    directory = (std::filesystem::temp_directory_path() / ("varve-test-" + UniqueId::random().value().hex())).string();
    EXPECT_TRUE(fs->create_directory(directory).ok());
  }
  ~PosixSubject() override { std::filesystem::remove_all(directory); }
};

struct MemorySubject final : FileSystemSubject {
  MemorySubject() {
    fs = &memory;
    directory = "/tmp";
    EXPECT_TRUE(fs->create_directory(directory).ok());
  }
  MemoryFileSystem memory;
};

struct FaultySubject final : FileSystemSubject {
  FaultySubject() : faulty(memory) {
    fs = &faulty;
    directory = "/";
  }
  MemoryFileSystem memory;
  FaultyFileSystem faulty;
};

struct ThrottledSubject final : FileSystemSubject {
  ThrottledSubject() : throttled(memory, 1e6, clock) {
    fs = &throttled;
    directory = "/";
  }
  MemoryFileSystem memory;
  ManualClock clock;
  ThrottledFileSystem throttled;
};

INSTANTIATE_TEST_SUITE_P(
    Kinds, EveryFileSystem,
    testing::Values(FileSystemKind{"posix", [] { return std::make_unique<PosixSubject>(); }},
                    FileSystemKind{"memory", [] { return std::make_unique<MemorySubject>(); }},
                    FileSystemKind{"faulty_without_faults", [] { return std::make_unique<FaultySubject>(); }},
                    FileSystemKind{"throttled", [] { return std::make_unique<ThrottledSubject>(); }}),
    [](const auto& parameter) { return std::string(parameter.param.name); });

TEST(Paths, AreJoinedAndTakenApart) {
  EXPECT_EQ(join_path("/a", "b"), "/a/b");
  EXPECT_EQ(join_path("/a/", "b"), "/a/b");
  EXPECT_EQ(join_path("", "b"), "b");
  EXPECT_EQ(parent_path("/a/b"), "/a");
  EXPECT_EQ(parent_path("/a/b/"), "/a");
  EXPECT_EQ(parent_path("/a"), "/");
  EXPECT_EQ(parent_path("/"), "/");
  EXPECT_EQ(parent_path("a"), ".");
  EXPECT_EQ(parent_path("a//b"), "a");
  EXPECT_EQ(base_name("/a/b"), "b");
  EXPECT_EQ(base_name("/a/b//"), "b");
  EXPECT_EQ(base_name("b"), "b");
}

}  // namespace
}  // namespace varve
