#include "runtime/published_parts.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/memory_file_system.h"
#include "store/catalog.h"
#include "store/test_sets.h"

namespace varve {
namespace {

struct APublishedPart : testing::Test {
  APublishedPart() {
    EXPECT_TRUE(Store::create(fs, "/s").ok());
    store = Store::open(fs, "/s").value();
    duty.group = {UniqueId::parse("000102030405060708090a0b0c0d0e0f").value(), "job", 0, 1};
    duty.wait_seconds = 600;
    duty.policy_for = [this](uint64_t) { return policy; };
  }
  /// It takes the place of another set of its step, of which other nodes have their share.
  void replace_on_nodes() {
    duty.has_other_nodes = true;
    policy = IfExists::replace;
    ASSERT_TRUE(test::save_numbers(*store, {"job", 5}, {1}, /*set_number=*/5).ok());
  }
  void publish(uint64_t step, uint64_t number) {
    if (!parts) {
      parts = std::make_unique<PublishedParts>(*store, duty, notes, null_progress(), clock);
      parts->meet_siblings();
    }
    DrainReport report;
    report.step = step;
    parts->add(std::move(report), {}, publish_part(step, number));
  }
  SetRecord publish_part(uint64_t step, uint64_t number) {
    test::SetMaker maker(*store);
    const LeafLink root = test::lay_numbers(*store, maker, {100 * number}).value();
    EXPECT_TRUE(maker.seal().ok());
    SetRecord record;
    record.name = {"job", step};
    record.scheme = "aware";
    record.rank_count = record.file_count = 1;
    record.raw_bytes = test::kNumberedChunkBytes;
    record.run = duty.group.run;
    record.number = number;
    record.groups.push_back({root.score, root.hint, maker.writer().bytes()});
    EXPECT_TRUE(maker.lease().publish_part(duty.group.part_of(step), record).ok());
    return record;
  }
  /// What is known of the parts by now.
  std::vector<DrainReport> look(bool hears_more = true) {
    std::vector<DrainReport> known;
    parts->look(hears_more, [&](DrainReport report, const LevelDuty&) { known.push_back(std::move(report)); });
    return known;
  }
  size_t parts_there() const { return list_parts(*store)->size(); }
  uint64_t number_of(uint64_t step) const { return Catalog(*store).read({"job", step})->number; }

  MemoryFileSystem fs;
  std::unique_ptr<Store> store;
  IfExists policy = IfExists::refuse;
  CheckpointDuty duty;
  CheckpointNotes notes;
  ManualClock clock;
  std::unique_ptr<PublishedParts> parts;
};

TEST_F(APublishedPart, ReplacesTheNodesSetWhenAllNodesAreKnownToHaveTheirs) {
  replace_on_nodes();
  publish(5, 6);
  clock.advance(100'000);
  EXPECT_TRUE(look().empty()) << "however long that takes";
  EXPECT_EQ(number_of(5), 5u);
  notes.note_set(5, SetState::all_there);
  const std::vector<DrainReport> known = look();
  ASSERT_EQ(known.size(), 1u);
  EXPECT_TRUE(known[0].outcome.ok()) << known[0].outcome.to_string();
  EXPECT_EQ(number_of(5), 6u);
}

TEST_F(APublishedPart, ReplacesTheNodesSetAlsoIfAnotherNodeIsSaidToHaveFailedAfterAllHadTheirs) {
  replace_on_nodes();
  publish(5, 6);
  notes.note_set(5, SetState::all_there);
  notes.note_set(5, SetState::given_up);
  EXPECT_TRUE(look().at(0).outcome.ok());
  EXPECT_EQ(number_of(5), 6u);
}

TEST_F(APublishedPart, IsTakenBackIfAnotherNodeHasNone) {
  replace_on_nodes();
  publish(5, 6);
  notes.note_set(5, SetState::given_up);
  const std::vector<DrainReport> known = look();
  ASSERT_EQ(known.size(), 1u);
  EXPECT_FALSE(known[0].outcome.ok() || known[0].may_come);
  EXPECT_EQ(number_of(5), 5u);
  EXPECT_EQ(parts_there(), 0u);
}

TEST_F(APublishedPart, StaysWhereOthersMayHaveHeardThatAllNodesHaveTheirs) {
  replace_on_nodes();
  publish(5, 6);
  notes.note_set(5, SetState::cut_off);
  const std::vector<DrainReport> known = look();
  ASSERT_EQ(known.size(), 1u);
  EXPECT_TRUE(!known[0].outcome.ok() && known[0].may_come);
  EXPECT_EQ(number_of(5), 5u);
  EXPECT_EQ(parts_there(), 1u);
}

TEST_F(APublishedPart, StaysWhereNothingMoreIsHeard) {
  replace_on_nodes();
  publish(5, 6);
  EXPECT_TRUE(look(/*hears_more=*/false).at(0).may_come);
  EXPECT_EQ(parts_there(), 1u);
}

TEST_F(APublishedPart, LetsLaterSetsWaitUntilAllNodesAreKnownToHaveTheirs) {
  replace_on_nodes();
  publish(5, 6);
  policy = IfExists::refuse;
  publish(6, 7);
  EXPECT_TRUE(look().empty());
  notes.note_set(5, SetState::all_there);
  EXPECT_EQ(look().size(), 2u);
  EXPECT_EQ(number_of(6), 7u);
}

TEST_F(APublishedPart, IsTakenBackWhenTheOthersAreTooLate) {
  duty.group.count = 2;
  publish(1, 1);
  clock.advance(601);
  EXPECT_EQ(look().at(0).outcome.code(), StatusCode::busy);
  EXPECT_EQ(parts_there(), 0u);
}

TEST_F(APublishedPart, StaysForTheOthersWhoHaveMoreTimeThanIt) {
  duty.group.count = 2;
  publish(1, 1);
  parts->wait_at_most(60);
  clock.advance(61);
  const std::vector<DrainReport> known = look();
  EXPECT_TRUE(known.at(0).outcome.code() == StatusCode::busy && known[0].may_come);
  EXPECT_EQ(parts_there(), 1u);
}

TEST_F(APublishedPart, OfWhoMakesNoSetsIsLookedForOnceItIsWaitedFor) {
  duty.group.count = 2;
  duty.group.ordinal = 1;
  publish(1, 1);
  duty.group.ordinal = 0;
  publish_part(1, 1);
  ASSERT_EQ(complete_leftover_parts(*store, "job").value().size(), 1u);
  duty.group.ordinal = 1;
  clock.advance(2);
  EXPECT_TRUE(look().empty()) << "it will be told";
  parts->look_early();
  clock.advance(2);
  const std::vector<DrainReport> known = look();
  ASSERT_EQ(known.size(), 1u);
  EXPECT_TRUE(known[0].outcome.ok()) << known[0].outcome.to_string();
}

}  // namespace
}  // namespace varve
