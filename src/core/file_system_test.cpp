#include "core/file_system.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/faulty_file_system.h"
#include "core/file_system_contract.h"
#include "core/memory_file_system.h"
#include "core/posix_file_system.h"
#include "core/process.h"
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

INSTANTIATE_TEST_SUITE_P(Kinds, EveryFileSystem,
                         testing::Values(FileSystemKind{"posix", [] { return std::make_unique<PosixSubject>(); }},
                                         FileSystemKind{"memory", [] { return std::make_unique<MemorySubject>(); }},
                                         FileSystemKind{"faulty_without_faults",
                                                        [] { return std::make_unique<FaultySubject>(); }}),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

TEST(PosixFile, GivesTheSameWhetherItsBytesAreInThePageCacheInPartOrNotAtAll) {
  constexpr size_t kBytes = 1_MiB, kPart = 256_KiB;
  PosixSubject subject;
  const std::string path = join_path(subject.directory, "file");
  ByteVector content(kBytes);
  for (size_t i = 0; i < kBytes; ++i) content[i] = static_cast<std::byte>(i * 2654435761U >> 13);
  ASSERT_TRUE(write_file_durably(*subject.fs, path, content).ok());
  const Result<std::unique_ptr<File>> file = subject.fs->open_read(path);
  ASSERT_TRUE(file.ok());
  const UniqueFd descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  Buffer memory(kPart + kDirectAlignment);
  const size_t misaligned = reinterpret_cast<uintptr_t>(memory.data()) % kDirectAlignment;
  const MutableByteSpan into(memory.data() + (kDirectAlignment - misaligned) % kDirectAlignment, kPart);
  auto expect_all = [&](const char* state) {
    for (size_t offset = 0; offset < kBytes; offset += kPart) {
      const Result<size_t> got = (*file)->read_at(offset, into);
      ASSERT_TRUE(got.ok());
      ASSERT_EQ(*got, kPart);
      EXPECT_TRUE(std::equal(into.begin(), into.end(), content.begin() + static_cast<ptrdiff_t>(offset))) << state;
    }
  };
  expect_all("as it was written");
  ASSERT_EQ(::posix_fadvise(descriptor.get(), 0, 0, POSIX_FADV_DONTNEED), 0);
  expect_all("not cached");
  ByteVector one_block(4096);
  ASSERT_EQ(::pread(descriptor.get(), one_block.data(), one_block.size(), kPart), 4096);
  expect_all("in part");

  // What was written since by another way, beyond the old end too.
  const UniqueFd writer(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  std::fill(content.begin(), content.end(), std::byte{7});
  content.resize(kBytes + kPart, std::byte{8});
  ASSERT_EQ(::pwrite(writer.get(), content.data(), content.size(), 0), static_cast<ssize_t>(content.size()));
  expect_all("written anew");
  ASSERT_EQ(*(*file)->read_at(kBytes, into), kPart);
  EXPECT_EQ(into[0], std::byte{8});
  ASSERT_EQ(::ftruncate(writer.get(), kPart / 2), 0);
  EXPECT_EQ(*(*file)->read_at(0, into), kPart / 2);
  EXPECT_EQ(*(*file)->read_at(kPart, into), 0U);
}

TEST(ALinkInPlaceOfARename, ReplacesNothingAndKnowsWhatItHasDoneBefore) {
  const PosixSubject place;
  const auto path = [&](const char* name) { return place.directory + "/" + name; };
  const auto rename = [&](const char* from, const char* to) {
    return link_no_replace_at(AT_FDCWD, path(from).c_str(), AT_FDCWD, path(to).c_str());
  };
  for (const char* name : {"a", "b"}) ASSERT_TRUE(write_file_durably(*place.fs, path(name), as_bytes(name)).ok());
  EXPECT_EQ(rename("a", "b"), EEXIST);
  EXPECT_EQ(as_text(read_file(*place.fs, path("b"), 9).value()), "b");
  EXPECT_EQ(rename("a", "c"), 0);
  EXPECT_EQ(rename("a", "c"), ENOENT);
  std::filesystem::create_hard_link(path("c"), path("a"));  // as it is when the link is made, and the answer lost
  EXPECT_EQ(rename("a", "c"), 0);
  EXPECT_FALSE(place.fs->stat(path("a")).ok());
  EXPECT_EQ(as_text(read_file(*place.fs, path("c"), 9).value()), "a");
}

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
