#include "level/retention.h"

#include <gtest/gtest.h>

#include "core/memory_file_system.h"
#include "engine/transfer.h"
#include "store/prune.h"
#include "store/test_sets.h"

#include <algorithm>
#include <random>

namespace varve {
namespace {

using Steps = std::vector<uint64_t>;

/// Sets that all nodes have, made in the order of their steps.
std::vector<SetAtLevel> whole(const Steps& steps) {
  std::vector<SetAtLevel> sets;
  for (const uint64_t step : steps) sets.push_back({.step = step, .number = sets.size() + 1, .complete = true});
  return sets;
}

TEST(TheRetentionRule, LetsGoWhatIsOlderThanTheNewestThatAreKept) {
  EXPECT_EQ(sets_that_may_leave(whole({1, 2, 3, 4}), {.complete = 2}), (Steps{1, 2}));
  EXPECT_EQ(sets_that_may_leave(whole({1, 2, 3, 4}), {.complete = 4}), Steps());
  EXPECT_EQ(sets_that_may_leave({}, {.complete = 1}), Steps());
}

TEST(TheRetentionRule, CountsOnlySetsThatAllNodesHave) {
  auto sets = whole({1, 2, 3, 4, 5});
  sets[2].complete = sets[3].complete = sets[4].complete = false;
  EXPECT_EQ(sets_that_may_leave(sets, {.complete = 1}), Steps{1}) << "2 is the newest that is whole";
  EXPECT_EQ(sets_that_may_leave(sets, {.complete = 2}), Steps());
}

TEST(TheRetentionRule, KeepsWhatAFartherLevelIsOwed) {
  auto sets = whole({1, 2, 3, 4});
  sets[1].owed = true;
  EXPECT_EQ(sets_that_may_leave(sets, {.complete = 1}), (Steps{1, 3}));
}

TEST(TheRetentionRule, KeepsTheNewestThatHasRedundancy) {
  auto sets = whole({1, 2, 3, 4});
  sets[0].has_redundancy = sets[1].has_redundancy = true;
  EXPECT_EQ(sets_that_may_leave(sets, {.complete = 1}), (Steps{1, 3}));
  EXPECT_EQ(sets_that_may_leave(sets, {.complete = 1, .with_redundancy = 2}), Steps{3});
}

TEST(TheRetentionRule, LetsPartsGoThatCanNeverBeWhole) {
  auto sets = whole({1, 2, 3});
  sets[2].complete = false;
  sets[2].never_complete = sets[2].owed = true;
  EXPECT_EQ(sets_that_may_leave(sets, {.complete = 3}), Steps{3});
  sets[2].complete = true;  // it is whole, whatever was told before
  EXPECT_EQ(sets_that_may_leave(sets, {.complete = 3}), Steps{});
}

TEST(TheRetentionRule, DoesNotTakeStepsThatARunHasLeftBehindForNewerOnes) {
  // It fell back from step 5 to 2, and has made 3 anew.
  std::vector<SetAtLevel> sets = whole({1, 2, 4, 5});
  sets.push_back({.step = 3, .number = 5, .complete = true});
  EXPECT_EQ(sets_that_may_leave(sets, {.complete = 1}), (Steps{1, 2, 4})) << "3 stays, although 5 is a higher step";
  EXPECT_EQ(sets_that_may_leave(sets, {.complete = 2}), Steps{1}) << "5 does not push out 2";
}

TEST(TheRetentionRule, NeitherLetsGoNorCountsWhatCannotBeRead) {
  auto sets = whole({1, 2, 3});
  for (const size_t unread : {0, 2}) {
    sets[unread].number = 0;
    sets[unread].is_known = false;
  }
  EXPECT_EQ(sets_that_may_leave(sets, {.complete = 1}), Steps());
  sets.push_back({.step = 4, .number = 4, .complete = true});
  EXPECT_EQ(sets_that_may_leave(sets, {.complete = 1}), Steps{2});
}

TEST(TheRetentionRule, CountsNothingBehindWhichARunHasGoneBack) {
  // It fell back from step 5 to 4, and has made 7 on this node alone.
  std::vector<SetAtLevel> sets = whole({4, 5});
  sets[0].has_redundancy = sets[1].has_redundancy = true;
  sets[1].replaceable = true;
  sets.push_back({.step = 7, .number = 3});
  EXPECT_EQ(sets_that_may_leave(sets, {.complete = 1}), Steps()) << "4 is all that is whole of this run's";
  sets[2].complete = true;
  EXPECT_EQ(sets_that_may_leave(sets, {.complete = 1}), Steps()) << "4 is all that has redundancy";
  sets[2].has_redundancy = true;
  EXPECT_EQ(sets_that_may_leave(sets, {.complete = 1}), (Steps{4, 5}));
}

TEST(TheRetentionRule, KeepsWhatIsToBeReplacedIfWhatWasToReplaceItHasFailed) {
  std::vector<SetAtLevel> sets = whole({1, 2});
  sets[1].never_complete = sets[1].replaceable = true;
  EXPECT_EQ(sets_that_may_leave(sets, {.complete = 2}), Steps());
}

TEST(TheRetentionRule, NeverLetsTheNewestWholeSetGoWhateverElseIsThere) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 20'000; ++round) {
    std::vector<SetAtLevel> sets;
    for (uint64_t i = 0; i < random() % 8; ++i) {
      SetAtLevel set{.step = random() % 10, .number = random() % 10};
      set.complete = random() % 2 == 0;
      set.has_redundancy = set.complete && random() % 3 == 0;
      set.owed = random() % 4 == 0;
      set.never_complete = !set.complete && random() % 4 == 0;
      sets.push_back(set);
    }
    const KeepRule keep{.complete = 1 + random() % 3, .with_redundancy = 1 + random() % 2};
    const Steps leaving = sets_that_may_leave(sets, keep);
    const auto leaves = [&](const SetAtLevel& set) {
      return std::find(leaving.begin(), leaving.end(), set.step) != leaving.end();
    };
    const auto remain = [&](auto counts) {
      return static_cast<uint64_t>(
          std::count_if(sets.begin(), sets.end(), [&](const SetAtLevel& set) { return counts(set) && !leaves(set); }));
    };
    const auto all = [&](auto counts) {
      return static_cast<uint64_t>(std::count_if(sets.begin(), sets.end(), counts));
    };
    const auto is_complete = [](const SetAtLevel& set) { return set.complete; };
    const auto has_redundancy = [](const SetAtLevel& set) { return set.has_redundancy; };
    // Two sets of one step cannot be at a level: those drawn so are told apart by nobody.
    Steps steps;
    for (const SetAtLevel& set : sets) steps.push_back(set.step);
    std::sort(steps.begin(), steps.end());
    if (std::adjacent_find(steps.begin(), steps.end()) != steps.end()) continue;
    EXPECT_GE(remain(is_complete), std::min(keep.complete, all(is_complete))) << "seed 7, round " << round;
    EXPECT_GE(remain(has_redundancy), std::min(keep.with_redundancy, all(has_redundancy))) << "round " << round;
    for (const SetAtLevel& set : sets) EXPECT_FALSE(set.owed && !set.never_complete && leaves(set)) << round;
  }
}

TEST(ALevelsTurn, GoesByTheNumberOfTheSet) {
  LevelSpec level;
  EXPECT_TRUE(is_due(level, 0)) << "all go there, also those of versions that did not number them";
  level.every = 3;
  EXPECT_TRUE(is_due(level, 3));
  EXPECT_FALSE(is_due(level, 4));
  EXPECT_FALSE(is_due(level, 0));
}

TEST(TheBacklog, HasNoSetOfWhichTheLevelHasTheSameFilesInOtherTrees) {
  MemoryFileSystem near_disk, far_disk;
  for (MemoryFileSystem* disk : {&near_disk, &far_disk}) ASSERT_TRUE(Store::create(*disk, "/store").ok());
  const auto near = Store::open(near_disk, "/store").value(), far = Store::open(far_disk, "/store").value();
  const std::string job = "job";
  const LevelSpec level = parse_level("dir:/store").value();
  DueSets due{.level = level, .job = job};
  due.wanted = [](const SetRecord&) { return true; };
  const SetName name{job, 1};
  ASSERT_TRUE(test::save_numbers(*near, name, test::numbers_between(1, 50)).ok());
  EXPECT_EQ(backlog_of(*near, *far, due)->owed.size(), 1u);
  ASSERT_TRUE(copy_set(*near, *far, name).ok());
  // It leaves the nearest store, and is saved there anew, when another set has some of it.
  ASSERT_TRUE(Catalog(*near).remove(name).ok());
  ASSERT_TRUE(prune_store(*near, {}).ok());
  ASSERT_TRUE(test::save_numbers(*near, {"other", 1}, test::numbers_between(20, 30)).ok());
  ASSERT_TRUE(test::save_numbers(*near, name, test::numbers_between(1, 50)).ok());
  ASSERT_FALSE(has_trees_of(*Catalog(*far).read(name), *Catalog(*near).read(name)));
  EXPECT_TRUE(backlog_of(*near, *far, due)->owed.empty());
  ASSERT_TRUE(Catalog(*near).remove(name).ok());
  ASSERT_TRUE(test::save_numbers(*near, name, test::numbers_between(2, 51)).ok());
  EXPECT_EQ(backlog_of(*near, *far, due)->owed.size(), 1u) << "other files";
}

TEST(Retention, DropsNoSetWhoseRecordCannotBeReadNorAnyForIt) {
  MemoryFileSystem disk;
  ASSERT_TRUE(Store::create(disk, "/store").ok());
  test::UnreadableFile files(disk);
  const auto store = Store::open(files, "/store").value();
  const auto save = [&](uint64_t step, uint64_t number) {
    ASSERT_TRUE(test::save_numbers(*store, {"job", step}, test::numbers_between(step, step + 3), number).ok());
  };
  save(990, 1);
  save(1000, 2);
  save(510, 3);  // a run has gone back
  save(520, 4);
  for (const char* unread : {"520.set", "510.set", "1000.set", "990.set"}) {
    files.name = unread;
    // A new one for each, as a save has it.
    EXPECT_TRUE(Retention({.job = "job", .keep = 2}).apply(*store, null_progress()).ok());
    EXPECT_EQ(Catalog(*store).steps("job").value(), (Steps{510, 520, 990, 1000})) << unread;
  }
}

/// A nearest store, and a level behind it that keeps so many sets.
struct TheBacklogOfALevelThatKeeps : testing::Test {
  TheBacklogOfALevelThatKeeps() {
    for (MemoryFileSystem* disk : {&near_disk, &far_disk}) EXPECT_TRUE(Store::create(*disk, "/store").ok());
    near = Store::open(near_files, "/store").value();
    far = Store::open(far_disk, "/store").value();
    due.wanted = [](const SetRecord&) { return true; };
  }
  void save(const Store& store, uint64_t step, uint64_t number) {
    ASSERT_TRUE(
        test::save_numbers(store, {job, step}, test::numbers_between(100 * number, 100 * number + 9), number).ok());
  }
  Steps owed() {
    Steps steps;
    const auto backlog = backlog_of(*near, *far, due);
    for (const OwedSet& set : backlog->owed) steps.push_back(set.step);
    return steps;
  }

  MemoryFileSystem near_disk, far_disk;
  test::UnreadableFile near_files{near_disk};
  std::unique_ptr<Store> near, far;
  const std::string job = "job";
  LevelSpec level = parse_level("dir:/store").value();
  DueSets due{.level = level, .job = job};
};

TEST_F(TheBacklogOfALevelThatKeeps, HasWhatOnlySetsOutliveThatAreToBeReplacedThere) {
  level.keep = 1;
  save(*near, 5, 5);
  for (const uint64_t step : {6u, 7u}) save(*far, step, step);
  EXPECT_EQ(owed(), Steps());
  // The run goes on from 5, as what is newer cannot be read.
  due.replaceable = [](uint64_t step) { return step > 5; };
  EXPECT_EQ(owed(), Steps{5});
}

TEST_F(TheBacklogOfALevelThatKeeps, HasWhatCannotBeRead) {
  level.keep = 1;
  save(*near, 7, 3);
  save(*far, 8, 1);
  save(*far, 9, 2);
  EXPECT_EQ(owed(), Steps{7});
  near_files.name = "7.set";
  EXPECT_EQ(owed(), Steps{7}) << "it is newer than what is there, which nobody can tell now";
}

TEST_F(TheBacklogOfALevelThatKeeps, HasWhatTheLevelHasNoMoreThanARecordOf) {
  for (const uint64_t step : {1u, 2u}) {
    save(*near, step, step);
    ASSERT_TRUE(copy_set(*near, *far, {job, step}).ok());
  }
  EXPECT_EQ(owed(), Steps());
  const ArenaId lost = Catalog(*far).read({job, 2})->groups[0].hint;
  ASSERT_TRUE(far_disk.remove(far->arena_path(lost)).ok());
  far = Store::open(far_disk, "/store").value();
  EXPECT_EQ(owed(), Steps{2});
  ASSERT_TRUE(copy_set(*near, *far, {job, 2}).ok());
  EXPECT_EQ(owed(), Steps());
  EXPECT_TRUE(test::check_numbers(*far, {job, 2}, test::numbers_between(200, 209)).ok());
}

TEST_F(TheBacklogOfALevelThatKeeps, HasWhatARunMadeThatHasGoneBackBehindWhatIsThere) {
  level.keep = 2;
  for (const uint64_t step : {500u, 600u}) save(*far, step, step / 100);
  for (const uint64_t step : {10u, 20u, 30u}) save(*near, step, step);
  EXPECT_EQ(owed(), (Steps{20, 30}));
}

TEST_F(TheBacklogOfALevelThatKeeps, CountsEachStepOnceAlsoIfAnotherSetOfItIsThere) {
  level.keep = 2;
  for (const uint64_t step : {6u, 7u}) save(*far, step, step);
  // A run has made them anew.
  save(*near, 6, 8);
  save(*near, 7, 9);
  EXPECT_EQ(owed(), (Steps{6, 7}));
}

}  // namespace
}  // namespace varve
