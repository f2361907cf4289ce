#include "backend/folder_backend.h"

#include <stdlib.h>

#include <filesystem>

#include "backend/backend_contract.h"
#include "backend/throttled_backend.h"
#include "core/faulty_file_system.h"
#include "core/memory_file_system.h"

namespace varve {
namespace {

struct InMemory final : BackendSubject {
  InMemory() {
    if (!fs.create_directory("/s").ok()) std::abort();
    backend = &folder;
  }
  MemoryFileSystem fs;
  FolderBackend folder{fs, "/s"};
};

struct OnDisk final : BackendSubject {
  OnDisk() : folder(posix_file_system(), make_folder()) { backend = &folder; }
  ~OnDisk() override { std::filesystem::remove_all(folder.root()); }
  static std::string make_folder() {
    std::string path = std::filesystem::temp_directory_path() / "varve-backend-XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) std::abort();
    return path;
  }
  FolderBackend folder;
};

/// As fast as the other one.
struct Throttled final : BackendSubject {
  Throttled() { backend = &slow; }
  OnDisk disk;
  ThrottledBackend slow{*disk.backend, 1e12};
};

INSTANTIATE_TEST_SUITE_P(Folders, EveryBackend,
                         testing::Values(BackendKind{"memory", [] { return std::make_unique<InMemory>(); }},
                                         BackendKind{"disk", [] { return std::make_unique<OnDisk>(); }},
                                         BackendKind{"throttled", [] { return std::make_unique<Throttled>(); }}),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST(AFolder, HasObjectsAsLongAsTheyAreHoweverTheyWereWritten) {
  const OnDisk disk;
  const std::string path = disk.folder.root() + "/a";
  AlignedBlock block(1_MiB);
  std::fill_n(block.data(), 1_MiB, std::byte{1});
  for (const bool durable : {true, false}) {
    const auto object = disk.backend->put(path, {.direct = true, .durable = durable}).value();
    constexpr uint64_t kBlocks = 20;  // enough for the system to set space aside
    for (uint64_t i = 0; i < kBlocks; ++i) ASSERT_TRUE(object->write_at(i * 1_MiB, block.first(1_MiB)).ok());
    ASSERT_TRUE(object->seal(kBlocks * 1_MiB - 100).ok());
    const FileStatus status = posix_file_system().stat(path).value();
    EXPECT_EQ(status.bytes, kBlocks * 1_MiB - 100);
    EXPECT_LE(status.allocated_bytes, (kBlocks + 1) * 1_MiB);
    ASSERT_TRUE(posix_file_system().remove(path).ok());
  }
}

TEST(AFolder, PutsARecordBackThatWasMadeAnewWhileItWasRemoved) {
  MemoryFileSystem fs;
  FolderBackend folder(fs, "/");
  ASSERT_TRUE(folder.records().publish("/a", as_bytes("new")).ok());
  ASSERT_TRUE(folder.records().remove_unchanged("/a", as_bytes("old")).ok());
  EXPECT_EQ(fs.list("/").value().size(), 1u);
}

TEST(AFolder, HasRemovedARecordThatAPruneHasTakenForALeftoverMeanwhile) {
  struct BesideAPrune final : ForwardingFileSystem {
    using ForwardingFileSystem::ForwardingFileSystem;
    Status rename(const std::string& from, const std::string& to) override {
      VARVE_TRY(ForwardingFileSystem::rename(from, to));
      return to.ends_with(".stale") ? ForwardingFileSystem::remove(to) : Status();
    }
  };
  MemoryFileSystem memory;
  BesideAPrune fs(memory);
  FolderBackend folder(fs, "/");
  ASSERT_TRUE(folder.records().publish("/a", as_bytes("old")).ok());
  const Status removed = folder.records().remove_unchanged("/a", as_bytes("old"));
  EXPECT_TRUE(removed.ok()) << removed.to_string();
  EXPECT_TRUE(memory.list("/")->empty());
}

TEST(AFolder, LeavesNothingOfARecordThatItCouldNotWrite) {
  for (uint64_t operation = 0;; ++operation) {
    MemoryFileSystem memory;
    FaultyFileSystem fs(memory, {{.kind = FaultKind::no_space, .at_operation = operation}});
    FolderBackend folder(fs, "/");
    const Status published = folder.records().publish("/a", as_bytes("text"));
    const Status held = folder.records().hold("/b", as_bytes("text")).status();
    EXPECT_EQ(memory.stat("/a").ok(), published.ok()) << operation;
    EXPECT_EQ(memory.stat("/b").ok(), held.ok()) << operation;
    if (!fs.struck()) break;
    EXPECT_EQ(memory.list("/").value().size(), 1u) << operation;
  }
}

}  // namespace
}  // namespace varve
