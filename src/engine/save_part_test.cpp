#include "engine/save.h"

#include <gtest/gtest.h>

#include <mutex>
#include <thread>

#include "core/memory_file_system.h"
#include "sets/saving.h"
#include "store/stored_copies.h"

namespace varve {
namespace {

const UniqueId kRun = UniqueId::parse("000102030405060708090a0b0c0d0e0f").value();

/// A program's memory: one file for each rank, with two variables that lie in it one after the other.
class MemorySource final : public Source {
 public:
  MemorySource(uint32_t first_rank, uint32_t rank_count, uint64_t step) {
    for (uint32_t rank = first_rank; rank < first_rank + rank_count; ++rank) {
      ByteVector image = test::smooth_field(3000, rank);
      const ByteVector fresh = test::random_bytes(20'000, 100 * step + rank);
      image.insert(image.end(), fresh.begin(), fresh.end());
      SourceFile file;
      file.path = "rank-" + std::to_string(rank) + ".varve";
      file.mode = 0600;
      file.bytes = image.size();
      file.rank = rank;
      files_.push_back(file);
      images_.push_back(std::move(image));
    }
  }

  const std::vector<SourceFile>& files() const override { return files_; }
  Result<std::vector<Layout>> layouts(ProgressSink&) override {
    Variable field{"/density", {ElementKind::floating, ByteOrder::little, 8}, {3000}, {{0, 24'000}}, {}, false};
    Variable noise{"/noise", {}, {20'000}, {{24'000, 20'000}}, {}, false};
    return std::vector<Layout>(files_.size(), Layout{"snapshot", {field, noise}});
  }
  Status read(uint32_t file, uint64_t offset, MutableByteSpan into) override {
    if (fail_reads) return Status::io_error("the memory is gone");
    std::copy_n(images_[file].begin() + static_cast<ptrdiff_t>(offset), into.size(), into.begin());
    return {};
  }
  Result<uint64_t> hole_bytes(uint32_t, uint64_t, uint64_t) override { return uint64_t{0}; }
  Status check_unchanged() override { return changed ? Status::busy("the snapshot changed", "snapshot") : Status(); }

  /// Puts the files into a folder, as a restore would.
  void write_to(const std::string& folder) const {
    for (size_t i = 0; i < files_.size(); ++i) test::write_file(folder + "/" + files_[i].path, images_[i]);
  }

  bool fail_reads = false, changed = false;

 private:
  std::vector<SourceFile> files_;
  std::vector<ByteVector> images_;
};

/// The same in memory that need not be read, and counts how often each byte was left.
class ViewedSource final : public Source {
 public:
  explicit ViewedSource(MemorySource& source) : source_(source) {
    for (const SourceFile& file : source_.files()) {
      images_.emplace_back(file.bytes);
      EXPECT_TRUE(source_.read(static_cast<uint32_t>(images_.size() - 1), 0, images_.back()).ok());
      left_.emplace_back(file.bytes);
    }
  }
  const std::vector<SourceFile>& files() const override { return source_.files(); }
  Result<std::vector<Layout>> layouts(ProgressSink& progress) override { return source_.layouts(progress); }
  Status read(uint32_t, uint64_t, MutableByteSpan) override { return Status::internal("all of it can be viewed"); }
  ByteSpan view(uint32_t file, uint64_t offset, uint64_t bytes_max) override {
    return ByteSpan(images_[file]).subspan(offset, bytes_max);
  }
  void leave(ByteSpan viewed) override {
    const std::lock_guard lock(mutex_);
    for (size_t file = 0; file < images_.size(); ++file) {
      const std::byte* const begin = images_[file].data();
      for (const std::byte& each : viewed) {
        if (&each >= begin && &each < begin + images_[file].size()) ++left_[file][static_cast<size_t>(&each - begin)];
      }
    }
  }
  Result<uint64_t> hole_bytes(uint32_t, uint64_t, uint64_t) override { return uint64_t{0}; }
  Status check_unchanged() override { return source_.check_unchanged(); }

  /// What was left fewer times than this, of all files.
  size_t left_fewer_than(uint32_t times) const {
    size_t bytes = 0;
    for (const std::vector<uint32_t>& of_file : left_) {
      bytes += static_cast<size_t>(
          std::count_if(of_file.begin(), of_file.end(), [times](uint32_t count) { return count < times; }));
    }
    return bytes;
  }

 private:
  MemorySource& source_;
  std::vector<ByteVector> images_;
  std::mutex mutex_;
  std::vector<std::vector<uint32_t>> left_;
};

struct SavePart : testing::Test {
  MemoryFileSystem fs;
  std::unique_ptr<Store> store = test::make_store(fs);

  static PartName part(uint32_t ordinal, uint32_t count, uint64_t step = 7) {
    return {{"run", step}, kRun, ordinal, count};
  }
  static SaveOptions options() {
    SaveOptions options = test::save_options("", 0);
    options.variables.small_bytes = 0;
    return options;
  }
  Result<SetRecord> save(Source& source, const PartName& name) { return save_part(*store, source, name, options()); }
  /// The contents of the files of a set, without modes and times.
  std::map<std::string, ByteVector> contents(const SetName& name) {
    const test::TempFolder folder;
    RestoreOptions restoring;
    restoring.sync = false;
    EXPECT_TRUE(restore_set(*store, name, folder.path(), restoring).ok());
    return read_all(folder.path());
  }
  static std::map<std::string, ByteVector> read_all(const std::string& folder) {
    std::map<std::string, ByteVector> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      files[entry.path().filename()] = read_file(posix_file_system(), entry.path(), 10_MiB).value();
    }
    return files;
  }
  bool nothing_is_there() {
    return Catalog(*store).sets().value().empty() && list_parts(*store).value().empty() &&
           fs.list(store->writers_path()).value().empty() && store->list_arenas().value().empty();
  }
};

TEST_F(SavePart, LeavesWhatItViewedWhenItIsScoredAndWhenItIsEncodedOrWritten) {
  for (const bool stores : {false, true}) {
    MemorySource memory(0, 1, 7);
    SaveOptions saving = options();
    if (stores) saving.codec = {.kind = CodecPolicy::Kind::chain, .chain = {}};
    const SetName name{"run", 1};
    MemoryFileSystem disk;
    const auto own = test::make_store(disk);
    ViewedSource source(memory);
    const Result<SetRecord> saved = save_part(*own, source, {name, kRun, 0, 1}, saving);
    ASSERT_TRUE(saved.ok()) << saved.status().to_string();
    EXPECT_EQ(source.left_fewer_than(2), 0u) << "all is new: it is looked at twice";
    ASSERT_TRUE(complete_set(*own, kRun, name, 1).ok());

    ViewedSource again(memory);
    ASSERT_TRUE(save_part(*own, again, {{"run", 9}, kRun, 0, 1}, saving).ok());
    EXPECT_EQ(again.left_fewer_than(1), 0u) << "all is known: it is scored alone";
    EXPECT_GT(again.left_fewer_than(2), 40'000u);
  }
}

TEST_F(SavePart, OfSeveralGroupsAtOnceMakesTheSetThatTheirFilesMake) {
  constexpr uint32_t kGroups = 4;
  for (uint64_t step : {7, 8}) {
    test::TempFolder expected;
    std::vector<std::thread> writers;
    std::atomic<uint32_t> completed{0};
    for (uint32_t group = 0; group < kGroups; ++group) {
      MemorySource(3 * group, 3, step).write_to(expected.path());
      writers.emplace_back([&, group] {
        const auto own = test::open_store(fs);
        MemorySource source(3 * group, 3, step);
        const Result<SetRecord> saved = save_part(*own, source, part(group, kGroups, step), options());
        ASSERT_TRUE(saved.ok()) << saved.status().to_string();
        EXPECT_EQ(saved->groups.size(), 1u);
        if (complete_set(*own, kRun, {"run", step}, kGroups).ok()) ++completed;
      });
    }
    for (std::thread& writer : writers) writer.join();
    EXPECT_EQ(completed, 1u);
    EXPECT_EQ(contents({"run", step}), read_all(expected.path()));
    const SetRecord record = Catalog(*store).read({"run", step}).value();
    EXPECT_EQ(record.rank_count, 12u);
    EXPECT_EQ(record.file_count, 12u);
    EXPECT_EQ(record.raw_bytes, 12u * 44'000);
    EXPECT_EQ(record.groups.size(), kGroups);
    EXPECT_LE(record.new_bytes, step == 7 ? 12u * 44'000 : 12u * 20'000);
  }
  EXPECT_TRUE(test::is_whole(*store));
  EXPECT_TRUE(list_parts(*store).value().empty());
}

TEST_F(SavePart, KeepsEachVariableAsAStreamOfItsOwn) {
  MemorySource source(0, 1, 7);
  ASSERT_TRUE(save(source, part(0, 1)).ok());
  const SetRecord record = complete_set(*store, kRun, {"run", 7}, 1).value();
  const Leaf leaf =
      read_leaf(*store, read_root(*store, record.groups[0].root, record.groups[0].hint)->leaves.at(0)).value();
  ASSERT_EQ(leaf.files.at(0).layout.variables.size(), 2u);
  EXPECT_EQ(leaf.files[0].layout.variables[0].name, "/density");
  EXPECT_EQ(leaf.files[0].layout.format, "snapshot");
  EXPECT_EQ(leaf.files[0].rank, 0);
}

TEST_F(SavePart, IsInvisibleUntilTheSetIsComplete) {
  MemorySource source(0, 2, 7);
  ASSERT_TRUE(save(source, part(0, 2)).ok());
  EXPECT_TRUE(Catalog(*store).sets().value().empty());
  EXPECT_EQ(Catalog(*store).resolve("run").status().code(), StatusCode::not_found);
  EXPECT_EQ(save(source, part(0, 2)).status().code(), StatusCode::already_exists);
}

TEST_F(SavePart, LeavesNoPartBehindAPowerCutWhoseDataIsGone) {
  uint32_t made = 0, lost = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const uint64_t step = 100 + seed;
    for (const uint32_t group : {0u, 1u}) {
      MemorySource source(group, 1, step);
      ASSERT_TRUE(save(source, part(group, 2, step)).ok());
    }
    // Nothing has made the parts' names durable, and any of them may be there.
    const auto left = fs.after_crash({.kind = CrashPolicy::Kind::torn, .seed = seed});
    const auto again = test::open_store(*left);
    const Result<std::vector<SetName>> completed = complete_leftover_parts(*again, "run");
    ASSERT_TRUE(completed.ok()) << completed.status().to_string();
    const auto later = left->after_crash({.kind = CrashPolicy::Kind::drop_unsynced});
    const auto then = test::open_store(*later);
    for (const SetName& name : *completed) EXPECT_TRUE(Catalog(*then).read(name).ok());
    EXPECT_TRUE(test::is_whole(*then));
    ++(completed->empty() ? lost : made);
    ASSERT_TRUE(complete_set(*store, kRun, {"run", step}, 2, IfExists::refuse, PartNames::used_once).ok());
  }
  EXPECT_GT(made, 0u);
  EXPECT_GT(lost, 0u);
}

TEST_F(SavePart, PublishesNothingIfItsSourceFailsOrChanges) {
  MemorySource failing(0, 2, 7), changing(0, 2, 7);
  failing.fail_reads = true;
  EXPECT_EQ(save(failing, part(0, 1)).status().code(), StatusCode::io_error);
  EXPECT_TRUE(nothing_is_there());
  changing.changed = true;
  EXPECT_EQ(save(changing, part(0, 1)).status().code(), StatusCode::busy);
  EXPECT_TRUE(nothing_is_there());
}

/// Takes the writer's lease away while it reads for the first time, as a prune does that takes it for dead.
class RobbedSource final : public Source {
 public:
  RobbedSource(const Store& store, Source& inner, int times) : store_(store), inner_(inner), times_(times) {}
  const std::vector<SourceFile>& files() const override { return inner_.files(); }
  Result<std::vector<Layout>> layouts(ProgressSink& progress) override { return inner_.layouts(progress); }
  Status read(uint32_t file, uint64_t offset, MutableByteSpan into) override { return inner_.read(file, offset, into); }
  Result<uint64_t> hole_bytes(uint32_t file, uint64_t offset, uint64_t bytes_max) override {
    return inner_.hole_bytes(file, offset, bytes_max);
  }
  Status check_unchanged() override {
    if (times_-- > 0) {
      for (const DirectoryEntry& lease : store_.backend().list(store_.writers_path()).value()) {
        EXPECT_TRUE(store_.backend().remove(join_path(store_.writers_path(), lease.name)).ok());
      }
    }
    return inner_.check_unchanged();
  }

 private:
  const Store& store_;
  Source& inner_;
  int times_;
};

TEST_F(SavePart, StartsOverIfAPruneTookItsWriterForDead) {
  MemorySource source(0, 2, 7);
  RobbedSource once(*store, source, 1), always(*store, source, 100);
  EXPECT_TRUE(save(once, part(0, 2)).ok());
  EXPECT_EQ(save(always, part(1, 2)).status().code(), StatusCode::busy);
  EXPECT_EQ(list_parts(*store).value().size(), 1u);
}

}  // namespace
}  // namespace varve
