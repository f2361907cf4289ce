#include "level/set_completion.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/faulty_file_system.h"
#include "core/memory_file_system.h"
#include "store/catalog.h"
#include "store/test_sets.h"

namespace varve {
namespace {

const UniqueId kRun = UniqueId::parse("000102030405060708090a0b0c0d0e0f").value();

struct Completion : testing::Test {
  Completion() {
    EXPECT_TRUE(Store::create(fs, "/s").ok());
    store = Store::open(fs, "/s").value();
  }

  static PartName part(uint64_t step, uint32_t ordinal) { return {{"job", step}, kRun, ordinal, 2}; }
  /// Publishes a part, and returns what waits for its set.
  std::unique_ptr<SetCompletion> publish(uint64_t step, uint32_t ordinal, uint64_t more = 0) {
    const PartName name = part(step, ordinal);
    test::SetMaker maker(*store);
    const LeafLink root = test::lay_numbers(*store, maker, {100 * step + ordinal + more}).value();
    EXPECT_TRUE(maker.seal().ok());
    SetRecord record;
    record.name = name.set;
    record.scheme = "aware";
    record.rank_count = record.file_count = 1;
    record.raw_bytes = test::kNumberedChunkBytes;
    record.run = kRun;
    record.groups.push_back({root.score, root.hint, maker.writer().bytes()});
    EXPECT_TRUE(maker.lease().publish_part(name, record).ok());
    return std::make_unique<SetCompletion>(*store, name, record, IfExists::refuse, PartNames::used_once);
  }

  std::string path(uint64_t step, uint32_t ordinal) const {
    return join_path(parts_path(*store), part(step, ordinal).file_name());
  }
  ByteVector raw_part(uint64_t step, uint32_t ordinal) { return read_file(fs, path(step, ordinal), 1_MiB).value(); }

  MemoryFileSystem fs;
  std::unique_ptr<Store> store;
};

TEST_F(Completion, MakesTheSetOnceAllPartsAreThere) {
  const auto first = publish(1, 0);
  EXPECT_EQ(first->try_now().value().has_value(), false);
  EXPECT_EQ(first->missing(), std::vector<uint32_t>{1});
  const auto second = publish(1, 1);
  EXPECT_EQ(second->look().value().has_value(), false) << "who only looks makes none";
  EXPECT_TRUE(first->try_now().value()->by_us);
  EXPECT_FALSE(second->look().value()->by_us);
  EXPECT_TRUE(list_parts(*store)->empty());
}

TEST_F(Completion, IsSeenBrieflyWithoutAListOfParts) {
  const auto first = publish(1, 0), second = publish(1, 1);
  EXPECT_EQ(second->look_briefly().value().has_value(), false);
  EXPECT_TRUE(first->try_now().value()->by_us);
  EXPECT_FALSE(second->look_briefly().value()->by_us);

  const auto lonely = publish(2, 1);
  ASSERT_TRUE(publish_failure(*store, part(2, 0), Status(StatusCode::no_space, "the disk is full")).ok());
  EXPECT_EQ(lonely->look_briefly().value().has_value(), false) << "this, only a list shows";
  EXPECT_EQ(lonely->look().status().code(), StatusCode::no_space);
  EXPECT_TRUE(lonely->withdraw().ok());
  EXPECT_EQ(lonely->look_briefly().status().code(), StatusCode::not_found) << "it is gone, and there is no set";
}

TEST_F(Completion, MakesTheSetOfWhatItIsToldWithoutReadingAPart) {
  const auto first = publish(1, 0), second = publish(1, 1);
  const std::vector<ByteVector> told = {raw_part(1, 0), raw_part(1, 1)};
  // Nobody could make it of what is there now: who reads a part finds that it is damaged.
  ASSERT_TRUE(fs.create(join_path(parts_path(*store), "aside")).ok());
  ASSERT_TRUE(fs.rename(join_path(parts_path(*store), "aside"), path(1, 1)).ok());
  ASSERT_FALSE(read_part(*store, part(1, 1)).ok());
  first->note_told(told);
  const auto made = first->try_now();
  ASSERT_TRUE(made.ok() && *made) << made.status().to_string();
  EXPECT_EQ(Catalog(*store).read({"job", 1})->groups.size(), 2u);
  EXPECT_EQ(Catalog(*store).read({"job", 1})->groups[1].root, decode_part(*store, part(1, 1), told[1])->groups[0].root);
}

TEST_F(Completion, MakesNoSetOfWhatItIsToldIfAPartIsGone) {
  const auto first = publish(1, 0), second = publish(1, 1);
  first->note_told(std::vector<ByteVector>{raw_part(1, 0), raw_part(1, 1)});
  ASSERT_TRUE(remove_part(*store, part(1, 1)).ok());
  EXPECT_FALSE(first->try_now().value().has_value());
  EXPECT_TRUE(Catalog(*store).sets()->empty());
  EXPECT_TRUE(fs.list(store->writers_path())->empty()) << "and gives its lease up";
}

TEST_F(Completion, ReadsThePartsIfWhatItIsToldMakesNoSense) {
  const auto first = publish(1, 0), second = publish(1, 1);
  ByteVector torn = raw_part(1, 1);
  torn.resize(torn.size() / 2);
  const ByteVector of_the_other = raw_part(1, 0);
  first->note_told(std::vector<ByteVector>{of_the_other});
  first->note_told(std::vector<ByteVector>{of_the_other, torn});
  first->note_told(std::vector<ByteVector>{of_the_other, {}});
  EXPECT_TRUE(first->try_now().value()->by_us);
  EXPECT_EQ(Catalog(*store).read({"job", 1})->groups.size(), 2u);
}

TEST_F(Completion, ReadsThePartsIfWhatItIsToldWasSaidOfAnEarlierCheckpointOfTheStep) {
  const auto before = publish(1, 0), before_too = publish(1, 1);
  const std::vector<ByteVector> told = {raw_part(1, 0), raw_part(1, 1)};
  for (const uint32_t ordinal : {0, 1}) ASSERT_TRUE(remove_part(*store, part(1, ordinal)).ok());
  // The run went back, and makes it anew: what the first group saves is what it was, but not what the other one does.
  const auto first = publish(1, 0), second = publish(1, 1, 7);
  const SetRecord anew = read_part(*store, part(1, 1)).value();
  ASSERT_NE(anew.groups[0].root, decode_part(*store, part(1, 1), told[1])->groups[0].root);
  first->note_told(told);
  EXPECT_TRUE(first->try_now().value()->by_us);
  EXPECT_EQ(Catalog(*store).read({"job", 1})->groups[1].root, anew.groups[0].root);
}

TEST_F(Completion, IsNotSureOfASetWhoseNameCouldNotBeMadeDurable) {
  for (const bool told : {false, true}) {
    for (const bool persistent : {false, true}) {
      bool struck = true;
      for (uint64_t at = 0; struck; ++at) {
        MemoryFileSystem disk;
        ASSERT_TRUE(Store::create(disk, "/s").ok());
        store = Store::open(disk, "/s").value();
        const auto first = publish(1, 0), second = publish(1, 1);
        const std::vector<ByteVector> parts = {read_file(disk, path(1, 0), 1_MiB).value(),
                                               read_file(disk, path(1, 1), 1_MiB).value()};
        FaultyFileSystem faulty(
            disk, {{.kind = FaultKind::failed_sync, .at_operation = at, .persistent = persistent, .seed = at}});
        const auto there = Store::open(faulty, "/s").value();
        SetCompletion completion(*there, part(1, 0), read_part(*store, part(1, 0)).value(), IfExists::refuse,
                                 PartNames::used_once);
        if (told) completion.note_told(parts);
        const auto made = completion.try_now();
        struck = faulty.struck();
        EXPECT_TRUE(struck || (made.ok() && *made));
        // Whatever is called a set survives the loss of power.
        const auto left = disk.after_crash({.kind = CrashPolicy::Kind::drop_unsynced});
        const bool is_set = made.ok() && *made;
        EXPECT_TRUE(!is_set || Catalog(*Store::open(*left, "/s").value()).has({"job", 1}).value()) << faulty.trace();
      }
    }
  }
}

TEST_F(Completion, FindsASetThatAnEarlierRunHadPushed) {
  const auto first = publish(1, 0), second = publish(1, 1);
  const SetRecord again = read_part(*store, part(1, 1)).value();
  ASSERT_TRUE(complete_set(*store, kRun, {"job", 1}, 2).ok());
  // This run pushes the same trees once more, and the others see the set and push nothing.
  PartName name = part(1, 1);
  name.run.bytes[0] ^= std::byte{1};
  ASSERT_TRUE(WriterLease::acquire(*store).value()->publish_part(name, again).ok());
  SetCompletion pushed(*store, name, again, IfExists::refuse, PartNames::reused);
  const auto found = pushed.try_now();
  ASSERT_TRUE(found.ok() && *found) << found.status().to_string();
  EXPECT_FALSE((*found)->by_us);
  EXPECT_TRUE(list_parts(*store)->empty());
}

TEST_F(Completion, FindsASetWhosePartsAreBeingRemoved) {
  const auto first = publish(1, 0), second = publish(1, 1);
  // The one who makes it is as far as to have removed the other's part, and that one has gone on.
  ASSERT_TRUE(complete_set(*store, kRun, {"job", 1}, 2).ok());
  const std::string parts = parts_path(*store);
  ASSERT_TRUE(fs.create(join_path(parts, part(1, 1).file_name())).ok());
  const auto next = publish(2, 0);
  const auto found = second->try_now();
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  ASSERT_TRUE(found->has_value());
  EXPECT_FALSE((*found)->by_us);
}

TEST_F(Completion, KnowsThatItsSetGaveWayToANewerOneBesideWhatTheRunHasLeftBehind) {
  ASSERT_TRUE(test::save_numbers(*store, {"job", 3}, {1}).ok());  // of the course that the run has left
  const auto first = publish(1, 0), second = publish(1, 1);
  ASSERT_TRUE(complete_set(*store, kRun, {"job", 1}, 2).ok());
  const auto next = publish(2, 0), next_second = publish(2, 1);
  ASSERT_TRUE(complete_set(*store, kRun, {"job", 2}, 2).ok());
  ASSERT_TRUE(Catalog(*store).remove({"job", 1}).ok());
  const auto found = second->look();
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_TRUE(found->has_value());
}

TEST_F(Completion, SaysWhyAPartWillNotCome) {
  const auto first = publish(1, 0);
  ASSERT_TRUE(publish_failure(*store, part(1, 1), Status(StatusCode::no_space, "the disk is full")).ok());
  EXPECT_NE(first->try_now().status().to_string().find("the disk is full"), std::string::npos);
  const auto silent = publish(2, 0), later = publish(3, 1);
  EXPECT_NE(silent->try_now().status().to_string().find("group 2 of 2 did not write its part"), std::string::npos);
}

/// What all ranks learn of what each tells.
std::vector<uint64_t> largest(const std::vector<const JobSets*>& leaders) {
  std::vector<uint64_t> told = leaders.front()->tell(true);
  for (const JobSets* const leader : leaders) {
    const std::vector<uint64_t> own = leader->tell(true);
    for (size_t i = 0; i < told.size(); ++i) told[i] = std::max(told[i], own[i]);
  }
  return told;
}

TEST(TheSetsOfAJob, AreCompleteWhenTheFirstGroupHasMadeThem) {
  JobSets first, second;
  for (const uint64_t step : {uint64_t{1}, uint64_t{2}, uint64_t{3}}) {
    first.note_begin(step);
    second.note_begin(step);
  }
  second.note_published(1, /*makes_sets=*/false);
  EXPECT_TRUE(first.learn(largest({&first, &second})).all_there.empty());
  first.note_published(1, /*makes_sets=*/true);
  EXPECT_EQ(first.learn(largest({&first, &second})).all_there, std::vector<uint64_t>{1});
  EXPECT_FALSE(second.is_complete(1));
  first.note_own(1, true);
  second.note_own(2, false);
  const JobSets::News news = second.learn(largest({&first, &second}));
  EXPECT_EQ(news.complete, std::vector<uint64_t>{1});
  EXPECT_EQ(news.failed, std::vector<uint64_t>{2});
  EXPECT_TRUE(news.all_there.empty());
  EXPECT_EQ(second.newest_complete(), 1u);
  const JobSets::News nothing_new = second.learn(largest({&first, &second}));
  EXPECT_TRUE(nothing_new.complete.empty() && nothing_new.failed.empty());
}

TEST(TheSetsOfAJob, AreNotLostWhereARestartFindsThemWholeThoughAPartWasToldToHaveFailed) {
  const std::vector<std::function<void(JobSets&)>> ways = {[](JobSets& sets) { sets.note_complete(2); },
                                                           [](JobSets& sets) {
                                                             sets.note_all_complete({1, 2});
                                                           },
                                                           [](JobSets& sets) { sets.note_on_trial(2); }};
  for (const auto& found_whole : ways) {
    JobSets sets;
    sets.note_begin(2);
    sets.note_own(2, false);
    sets.learn(sets.tell(true));
    ASSERT_TRUE(sets.is_never_complete(2));
    found_whole(sets);
    EXPECT_FALSE(sets.is_never_complete(2));
  }
}

TEST(TheSetsOfAJob, AreTheNewCoursesWhereARunHasGoneBack) {
  JobSets first, second;
  for (JobSets* const sets : {&first, &second}) {
    sets->note_begin(1);
    sets->note_begin(2);
    sets->note_own(1, true);
    sets->note_own(2, true);
  }
  first.learn(largest({&first, &second}));
  for (JobSets* const sets : {&first, &second}) {
    sets->forget_told();
    sets->note_complete(2);
    sets->go_on_from(1);
    sets->note_begin(2);
  }
  EXPECT_TRUE(first.learn(largest({&first, &second})).complete.empty()) << "what the old course made is not meant";
  EXPECT_FALSE(first.is_complete(2));
}

}  // namespace
}  // namespace varve
