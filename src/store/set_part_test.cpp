#include "store/commit.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <semaphore>
#include <thread>

#include "core/file_system.h"
#include "core/memory_file_system.h"
#include "core/paused_file_system.h"
#include "store/prune.h"
#include "store/test_sets.h"
#include "store/verify.h"

namespace varve {
namespace {

using test::numbers_between;
using test::SetMaker;

const UniqueId kRun = UniqueId::parse("000102030405060708090a0b0c0d0e0f").value();
const UniqueId kOtherRun = UniqueId::parse("ff0102030405060708090a0b0c0d0e0f").value();

struct Parts : testing::Test {
  Parts() {
    EXPECT_TRUE(Store::create(fs, "/s").ok());
    store = Store::open(fs, "/s").value();
  }

  /// Publishes a part that consists of these numbered chunks.
  Status publish(const PartName& name, const std::vector<uint64_t>& numbers, const std::string& scheme = "aware",
                 uint64_t number = 0, const UniqueId& made_by = {}) {
    return publish_in(*store, name, numbers, scheme, number, made_by);
  }
  static Status publish_in(const Store& in, const PartName& name, const std::vector<uint64_t>& numbers,
                           const std::string& scheme = "aware", uint64_t number = 0, const UniqueId& made_by = {}) {
    SetMaker maker(in);
    VARVE_ASSIGN(LeafLink root, test::lay_numbers(in, maker, numbers));
    VARVE_TRY(maker.seal());
    SetRecord record;
    record.name = name.set;
    record.scheme = scheme;
    record.number = number;
    record.run = made_by;
    record.rank_count = record.file_count = 1;
    record.raw_bytes = numbers.size() * test::kNumberedChunkBytes;
    record.groups.push_back({root.score, root.hint, maker.writer().bytes()});
    return maker.lease().publish_part(name, record);
  }
  static PartName part(uint64_t step, uint32_t ordinal, uint32_t count = 2, const UniqueId& run = kRun) {
    return {{"job", step}, run, ordinal, count};
  }
  Status complete(uint64_t step, uint32_t count = 2, IfExists if_exists = IfExists::refuse) {
    return complete_set(*store, kRun, {"job", step}, count, if_exists).status();
  }
  /// The chunks of every group of a set are those, in this order.
  testing::AssertionResult holds(uint64_t step, const std::vector<std::vector<uint64_t>>& groups) {
    const Result<SetRecord> record = Catalog(*store).read({"job", step});
    if (!record.ok()) return testing::AssertionFailure() << record.status().to_string();
    if (record->groups.size() != groups.size()) return testing::AssertionFailure() << "another number of groups";
    for (size_t i = 0; i < groups.size(); ++i) {
      const Status status = test::check_group_numbers(*store, record->groups[i], groups[i]);
      if (!status.ok()) return testing::AssertionFailure() << status.to_string();
    }
    return testing::AssertionSuccess();
  }
  PruneReport prune(double part_seconds_max = 24 * 3600) {
    PruneOptions options;
    options.wait_seconds = options.silence_seconds = 0;
    options.part_seconds_max = part_seconds_max;
    Result<PruneReport> report = prune_store(*store, options);
    EXPECT_TRUE(report.ok()) << report.status().to_string();
    return report.ok() ? *report : PruneReport{};
  }
  size_t part_count() { return list_parts(*store).value().size(); }
  bool whole() { return verify_store(*store, true).value().damages.empty(); }

  MemoryFileSystem fs;
  std::unique_ptr<Store> store;
};

TEST(PartName, IsFoundAgainInItsFileName) {
  for (const std::string& job :
       std::vector<std::string>{"run", "a.b", "x of y", "job-of-2.part", std::string(100, 'j')}) {
    for (uint64_t step : {uint64_t{0}, UINT64_MAX}) {
      const PartName name{{job, step}, kRun, 3, 17};
      EXPECT_LT(name.file_name().size(), 256u);
      EXPECT_EQ(PartName::parse(name.file_name()), name);
    }
  }
}

TEST(PartName, IsNotFoundInOtherNames) {
  const std::string run = kRun.hex();
  EXPECT_TRUE(PartName::parse("a@7." + run + ".0-of-2.part"));
  for (const std::string& wrong :
       {std::string(), std::string(".part"), std::string("a@7"), "a@7." + run, "a@7." + run + ".part",
        "@7." + run + ".0-of-2.part", "a@07." + run + ".0-of-2.part", "a@." + run + ".0-of-2.part",
        "a@7." + run + ".2-of-2.part", "a@7." + run + ".0-of-02.part", "a@7." + run + ".+0-of-2.part",
        "a@7." + run + ".0-of-.part", "a@7." + run + ".-of-2.part", "a@7." + run + ".0-of-2.part2",
        "a@7." + run.substr(1) + ".0-of-2.part", "a@7." + run + ".0-of-2000000.part", "a@7." + run + "0-of-2.part",
        "a@7." + run + ".0-of-2.par", ".a@7." + run + ".0-of-2.part"}) {
    EXPECT_FALSE(PartName::parse(wrong)) << wrong;
  }
}

TEST_F(Parts, MakeASetOnceTheLastIsThere) {
  EXPECT_EQ(complete(7).code(), StatusCode::not_found);
  ASSERT_TRUE(publish(part(7, 1), numbers_between(11, 20)).ok());
  EXPECT_EQ(complete(7).code(), StatusCode::not_found);
  EXPECT_TRUE(Catalog(*store).sets().value().empty());
  ASSERT_TRUE(publish(part(7, 0), numbers_between(1, 10)).ok());
  const Result<SetRecord> set = complete_set(*store, kRun, {"job", 7}, 2);
  ASSERT_TRUE(set.ok()) << set.status().to_string();
  EXPECT_EQ(set->rank_count, 2u);
  EXPECT_EQ(set->file_count, 2u);
  EXPECT_EQ(set->raw_bytes, 20 * test::kNumberedChunkBytes);
  EXPECT_EQ(set->scheme, "aware");
  EXPECT_TRUE(holds(7, {numbers_between(1, 10), numbers_between(11, 20)}));
  EXPECT_EQ(part_count(), 0u);
  EXPECT_TRUE(whole());
  EXPECT_TRUE(fs.list(store->writers_path()).value().empty());
}

/// A writer that is held up when its lease holds its record, and is about to become a part.
class HeldAtPart final : public ForwardingFileSystem {
 public:
  using ForwardingFileSystem::ForwardingFileSystem;
  Status rename_no_replace(const std::string& from, const std::string& to) override {
    if (parent_path(to) == "/s/parts") {
      came.release();
      go_on.acquire();
    }
    return ForwardingFileSystem::rename_no_replace(from, to);
  }
  std::counting_semaphore<> came{0}, go_on{0};
};

// The prune does not wait for such a writer, as it knows what that needs, be it in the lease or in the part.
TEST_F(Parts, KeepWhatTheyNeedThoughAPruneHasNotWaitedForTheirWriter) {
  ASSERT_TRUE(fs.create_directory("/s/parts").ok());
  bool came_to_it = true, went = false;
  for (uint64_t at = 0; came_to_it; ++at) {
    const auto numbers = numbers_between(1000 * at, 1000 * at + 20);
    ASSERT_TRUE(test::save_numbers(*store, {"old", at}, numbers_between(1000 * at, 1000 * at + 80)).ok());
    HeldAtPart held(fs);
    const auto writes = Store::open(held, "/s").value();
    Status published;
    std::thread writer([&] {
      published = publish_in(*writes, part(at, 0, 1), numbers);
      held.came.release();  // if it failed before
    });
    held.came.acquire();
    // Its arena has the root alone: the chunks are where the old set has them, among others that nobody needs then.
    ASSERT_TRUE(Catalog(*store).remove({"old", at}).ok());
    PausedFileSystem paused(fs, at, [&] {
      held.go_on.release();
      writer.join();
    });
    PruneOptions options;
    options.wait_seconds = 0;
    const Result<PruneReport> report = prune_store(*Store::open(paused, "/s").value(), options);
    ASSERT_TRUE(report.ok()) << at << report.status().to_string();
    went = went || report->waiting_arenas == 0;
    came_to_it = paused.paused();
    held.go_on.release();
    if (writer.joinable()) writer.join();
    ASSERT_TRUE(published.ok()) << at << published.to_string();
    ASSERT_TRUE(complete(at, 1).ok()) << at;
    EXPECT_TRUE(holds(at, {numbers})) << at;
    ASSERT_TRUE(Catalog(*store).remove({"job", at}).ok());
    prune();
  }
  EXPECT_TRUE(went);
}

TEST_F(Parts, OfARunThatEndedAreOlderThanWhatTheNextOneNumbers) {
  EXPECT_EQ(first_number_of_run(*store, "job").value(), 1u);
  for (const uint32_t ordinal : {0, 1}) ASSERT_TRUE(publish(part(7, ordinal), {ordinal}, "aware", 50).ok());
  EXPECT_EQ(first_number_of_run(*store, "job").value(), 51u);
  EXPECT_EQ(first_number_of_run(*store, "other").value(), 1u);
  ASSERT_TRUE(complete(7).ok());
  EXPECT_EQ(first_number_of_run(*store, "job").value(), 51u);
  // One that cannot be read hides no other one.
  for (const uint32_t ordinal : {0, 1}) ASSERT_TRUE(publish(part(8, ordinal), {ordinal}, "aware", 60).ok());
  const std::string unreadable = join_path(parts_path(*store), part(8, 0).file_name());
  ASSERT_TRUE(write_file_durably(fs, unreadable, ByteVector(8)).ok());
  EXPECT_EQ(first_number_of_run(*store, "job").value(), 61u);
}

TEST_F(Parts, OfOneNameAreThereOnce) {
  ASSERT_TRUE(publish(part(7, 0), {1}).ok());
  EXPECT_EQ(publish(part(7, 0), {2}).code(), StatusCode::already_exists);
}

TEST_F(Parts, OfOtherRunsStepsAndCountsAreNotMixed) {
  ASSERT_TRUE(publish(part(7, 0), {1}).ok());
  ASSERT_TRUE(publish(part(7, 1, 2, kOtherRun), {2}).ok());
  ASSERT_TRUE(publish(part(8, 1), {3}).ok());
  ASSERT_TRUE(publish(part(7, 1, 3), {4}).ok());
  EXPECT_EQ(complete(7).code(), StatusCode::not_found);
}

TEST_F(Parts, ThatWereSavedWithOtherOptionsAreRefused) {
  ASSERT_TRUE(publish(part(7, 0), {1}, "aware").ok());
  ASSERT_TRUE(publish(part(7, 1), {2}, "agnostic").ok());
  EXPECT_EQ(complete(7).code(), StatusCode::invalid_argument);
  EXPECT_TRUE(Catalog(*store).sets().value().empty());
}

TEST_F(Parts, OfDifferentSetsOfTheStepAreRefused) {
  // One is left of what the run had made of the step before it went back, or was brought here for an earlier run.
  for (const auto& [number, made_by] : {std::pair(uint64_t{3}, kRun), std::pair(uint64_t{4}, kOtherRun)}) {
    ASSERT_TRUE(publish(part(7, 0), {1}, "aware", number, made_by).ok());
    ASSERT_TRUE(publish(part(7, 1), {2}, "aware", 4, kRun).ok());
    EXPECT_EQ(complete(7).code(), StatusCode::corrupt);
    EXPECT_TRUE(Catalog(*store).sets().value().empty());
    EXPECT_EQ(part_count(), 2u) << "none of them is taken for used";
    EXPECT_TRUE(fs.list(store->writers_path()).value().empty());
    for (const uint32_t ordinal : {0u, 1u}) ASSERT_TRUE(remove_part(*store, part(7, ordinal)).ok());
  }
  for (const uint32_t ordinal : {0u, 1u}) ASSERT_TRUE(publish(part(7, ordinal), {ordinal}, "aware", 4, kRun).ok());
  ASSERT_TRUE(complete(7).ok());
  EXPECT_EQ(Catalog(*store).read({"job", 7})->number, 4u);
  EXPECT_EQ(Catalog(*store).read({"job", 7})->run, kRun);
}

TEST_F(Parts, SurviveAPowerCutAsSoonAsTheyArePublished) {
  ASSERT_TRUE(publish(part(7, 0), {1}).ok());
  ASSERT_TRUE(publish(part(7, 1), {2}).ok());
  const auto left = fs.after_crash({.kind = CrashPolicy::Kind::drop_unsynced});
  const auto again = Store::open(*left, "/s").value();
  EXPECT_TRUE(complete_set(*again, kRun, {"job", 7}, 2).ok());
  const auto later = left->after_crash({.kind = CrashPolicy::Kind::drop_unsynced});
  EXPECT_TRUE(Catalog(*Store::open(*later, "/s").value()).read({"job", 7}).ok());
}

TEST_F(Parts, AreCompletedByTheNextRunIfTheirWritersWereKilled) {
  for (uint64_t step : {7, 8, 9}) ASSERT_TRUE(publish(part(step, 0), {step}).ok());
  for (uint64_t step : {7, 9}) ASSERT_TRUE(publish(part(step, 1), {step + 10}).ok());
  ASSERT_TRUE(publish({{"other", 7}, kRun, 0, 1}, {5}).ok());
  EXPECT_EQ(complete_leftover_parts(*store, "job").value(), (std::vector<SetName>{{"job", 7}, {"job", 9}}));
  EXPECT_EQ(Catalog(*store).sets().value(), (std::vector<SetName>{{"job", 7}, {"job", 9}}));
  EXPECT_EQ(part_count(), 2u);
  EXPECT_TRUE(complete_leftover_parts(*store, "job").value().empty());
}

TEST_F(Parts, DoNotReplaceASetUnlessTheyAreTold) {
  ASSERT_TRUE(test::save_numbers(*store, {"job", 7}, {100}).ok());
  ASSERT_TRUE(publish(part(7, 0, 1), {1}).ok());
  EXPECT_EQ(complete(7, 1).code(), StatusCode::already_exists);
  EXPECT_TRUE(holds(7, {{100}}));
  EXPECT_EQ(part_count(), 1u);
  prune();
  EXPECT_EQ(part_count(), 1u);
  ASSERT_TRUE(complete(7, 1, IfExists::replace).ok());
  EXPECT_TRUE(holds(7, {{1}}));
  EXPECT_EQ(part_count(), 0u);
  prune();
  EXPECT_TRUE(holds(7, {{1}}));
  EXPECT_EQ(store->list_arenas().value().size(), 1u);
}

TEST_F(Parts, AreCompletedByOneOfManyWritersThatTryAtOnce) {
  for (uint64_t step = 0; step < 20; ++step) {
    std::atomic<int> winners{0}, losers{0};
    std::vector<std::thread> threads;
    for (uint32_t ordinal = 0; ordinal < 4; ++ordinal) {
      threads.emplace_back([&, ordinal] {
        const auto own = Store::open(fs, "/s").value();
        ASSERT_TRUE(publish_in(*own, part(step, ordinal, 4), {1000 * step + ordinal}).ok());
        const Status status = complete_set(*own, kRun, {"job", step}, 4).status();
        if (status.ok()) ++winners;
        if (status.code() == StatusCode::already_exists || status.code() == StatusCode::not_found) ++losers;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(winners, 1);
    EXPECT_EQ(losers, 3);
    EXPECT_TRUE(holds(step, {{1000 * step}, {1000 * step + 1}, {1000 * step + 2}, {1000 * step + 3}}));
    EXPECT_EQ(part_count(), 0u);
  }
  EXPECT_TRUE(fs.list(store->writers_path()).value().empty());
}

TEST_F(Parts, ArePrunedNeitherWithWhatTheyReferTo) {
  ASSERT_TRUE(test::save_numbers(*store, {"job", 1}, numbers_between(1, 100)).ok());
  ASSERT_TRUE(publish(part(7, 0), numbers_between(1, 40)).ok());     // refers to the set's arena
  ASSERT_TRUE(publish(part(7, 1), numbers_between(201, 240)).ok());  // has its own
  ASSERT_TRUE(Catalog(*store).remove({"job", 1}).ok());
  EXPECT_EQ(prune().leftover_files, 0u);
  EXPECT_TRUE(whole());
  ASSERT_TRUE(complete(7).ok());
  EXPECT_TRUE(holds(7, {numbers_between(1, 40), numbers_between(201, 240)}));
}

TEST_F(Parts, GoWithAPruneWhenTheyHaveWaitedTooLong) {
  ASSERT_TRUE(publish(part(7, 0), numbers_between(1, 10)).ok());
  EXPECT_EQ(prune().leftover_files, 0u);
  EXPECT_EQ(prune(0).leftover_files, 1u);
  EXPECT_EQ(part_count(), 0u);
  EXPECT_TRUE(store->list_arenas().value().empty());
  EXPECT_EQ(complete(7).code(), StatusCode::not_found);
}

/// Keeps the parts of a set, as if its committer had been killed before it removed them.
struct LeftParts : Parts {
  LeftParts() {
    EXPECT_TRUE(publish(part(7, 0), numbers_between(1, 10)).ok());
    EXPECT_TRUE(publish(part(7, 1), numbers_between(11, 20)).ok());
    std::vector<ByteVector> files;
    for (uint32_t ordinal : {0u, 1u}) files.push_back(read_file(fs, path(ordinal), 1_MiB).value());
    EXPECT_TRUE(complete(7).ok());
    for (uint32_t ordinal : {0u, 1u}) EXPECT_TRUE(fs.create(path(ordinal)).value()->write_at(0, files[ordinal]).ok());
  }
  std::string path(uint32_t ordinal) { return join_path(parts_path(*store), part(7, ordinal).file_name()); }
};

TEST_F(LeftParts, GoWithTheNextAttemptToCompleteThem) {
  EXPECT_EQ(complete(7).code(), StatusCode::already_exists);
  EXPECT_EQ(part_count(), 0u);
}

TEST_F(LeftParts, GoWithTheNextPrune) {
  ASSERT_TRUE(fs.remove(path(0)).ok());
  EXPECT_EQ(prune().leftover_files, 1u);
  EXPECT_EQ(part_count(), 0u);
  EXPECT_TRUE(whole());
}

TEST_F(LeftParts, DoNotBringADroppedSetBack) {
  ASSERT_TRUE(Catalog(*store).remove({"job", 7}).ok());
  EXPECT_EQ(part_count(), 0u);
  EXPECT_TRUE(complete_leftover_parts(*store, "job").value().empty());
  EXPECT_TRUE(Catalog(*store).sets().value().empty());
}

TEST_F(Parts, ThatAreDamagedStopAPruneAndAreNamedByVerify) {
  ASSERT_TRUE(publish(part(7, 0), {1}).ok());
  const std::string path = join_path(parts_path(*store), part(7, 0).file_name());
  ASSERT_TRUE(fs.remove(path).ok());
  ASSERT_TRUE(fs.create(path).value()->write_at(0, test::numbered_chunk(1)).ok());
  PruneOptions options;
  options.wait_seconds = options.silence_seconds = 0;
  EXPECT_EQ(prune_store(*store, options).status().code(), StatusCode::corrupt);
  EXPECT_EQ(complete(7, 2).code(), StatusCode::not_found);
  const VerifyReport report = verify_store(*store, true).value();
  ASSERT_EQ(report.damages.size(), 1u);
  EXPECT_EQ(report.damages[0].affected_sets, std::vector<std::string>{"job@7 (part 1 of 2)"});
}

/// A writer that has read all parts and pauses, while another completes the set and somebody drops it, must not commit
/// what a prune has taken away meanwhile. What the lease holds counts for prunes.
TEST_F(Parts, AreNeededFromTheLeaseOnWhenTheCommitIsPrepared) {
  ASSERT_TRUE(publish(part(7, 0, 1), numbers_between(1, 10)).ok());
  const SetRecord record = read_part(*store, part(7, 0, 1)).value();
  const auto lease = WriterLease::acquire(*store).value();
  ASSERT_TRUE(lease->prepare(record).ok());
  ASSERT_TRUE(remove_part(*store, part(7, 0, 1)).ok());
  PruneOptions options;
  options.wait_seconds = 0;
  const auto own = Store::open(fs, "/s").value();
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(prune_store(*own, options).ok());
  ASSERT_TRUE(lease->commit_prepared(record.name, IfExists::refuse).ok());
  EXPECT_TRUE(holds(7, {numbers_between(1, 10)}));
  ASSERT_TRUE(prune_store(*own, options).ok());
  EXPECT_TRUE(holds(7, {numbers_between(1, 10)}));
}

/// Passes everything on; when the second part has been opened, the world goes on before it is read.
class PausingFileSystem final : public ForwardingFileSystem {
 public:
  PausingFileSystem(FileSystem& inner, std::function<void()> meanwhile)
      : ForwardingFileSystem(inner), meanwhile_(std::move(meanwhile)) {}
  Result<std::unique_ptr<File>> open_read(const std::string& path) override {
    Result<std::unique_ptr<File>> opened = ForwardingFileSystem::open_read(path);
    if (path.find("/parts/") != std::string::npos && ++parts_opened_ == 2) meanwhile_();
    return opened;
  }

 private:
  std::function<void()> meanwhile_;
  int parts_opened_ = 0;
};

TEST_F(Parts, AreNotCompletedByAWriterThatSleptWhileTheSetWasMadeDroppedAndPruned) {
  ASSERT_TRUE(test::save_numbers(*store, {"other", 1}, numbers_between(1, 10)).ok());
  ASSERT_TRUE(publish(part(7, 0), numbers_between(1, 10)).ok());
  ASSERT_TRUE(publish(part(7, 1), numbers_between(11, 20)).ok());
  // The arenas are marked already, so that the prune does not wait for the writer that sleeps.
  for (const ArenaId& arena : store->list_arenas().value()) {
    const std::string mark = join_path(store->condemned_path(), arena.hex());
    ASSERT_TRUE(fs.create(mark).value()->write_at(0, as_bytes("end 0\n")).ok());
  }
  PausingFileSystem pausing(fs, [&] {
    ASSERT_TRUE(complete(7).ok());
    ASSERT_TRUE(Catalog(*store).remove({"job", 7}).ok());
    ASSERT_TRUE(Catalog(*store).remove({"other", 1}).ok());
    PruneOptions options;
    options.wait_seconds = 0;
    ASSERT_TRUE(prune_store(*store, options).ok());
    ASSERT_TRUE(store->list_arenas().value().empty());
  });
  const auto sleeper = Store::open(pausing, "/s").value();
  EXPECT_EQ(complete_set(*sleeper, kRun, {"job", 7}, 2).status().code(), StatusCode::not_found);
  EXPECT_TRUE(Catalog(*store).sets().value().empty());
  EXPECT_TRUE(whole());
}

TEST_F(Parts, AndLeasesThatCannotBeUnderstoodKeepAPruneFromRemovingAnything) {
  ASSERT_TRUE(test::save_numbers(*store, {"job", 1}, {1}).ok());
  ASSERT_TRUE(Catalog(*store).remove({"job", 1}).ok());
  const std::string lease = join_path(store->writers_path(), kRun.hex());
  // Its mark is there already, so that no one waits for the lease.
  const ArenaId arena = store->list_arenas().value().at(0);
  ASSERT_TRUE(
      fs.create(join_path(store->condemned_path(), arena.hex())).value()->write_at(0, as_bytes("end 0\n")).ok());
  ASSERT_TRUE(fs.create(lease).value()->write_at(0, as_bytes("VARVESET, and then nothing that makes sense")).ok());
  PruneOptions options;
  options.wait_seconds = 0;
  EXPECT_EQ(prune_store(*store, options).value().waiting_arenas, 1u);
  EXPECT_EQ(store->list_arenas().value().size(), 1u);
  ASSERT_TRUE(fs.remove(lease).ok());
  EXPECT_EQ(prune_store(*store, options).value().removed_arenas, 1u);
}

}  // namespace
}  // namespace varve
