#include "snapshot/control_block.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <thread>

#include "core/process.h"
#include "snapshot/slot_description.h"
#include "snapshot/test_segments.h"

namespace varve {
namespace {

using Access = SharedSegment::Access;

ControlBlock::Identity identity_of(const SegmentOwner& owner) {
  return {.run = owner.run, .process = *ProcessIdentity::own(), .rank = owner.rank, .rank_count = 4, .slot_count = 2};
}

TEST(ControlBlock, SaysWhoseItIs) {
  const test::SegmentFolder folder;
  const SegmentOwner owner = folder.owner(3);
  const Result<ControlBlock> own = ControlBlock::create(owner, identity_of(owner));
  ASSERT_TRUE(own.ok()) << own.status().to_string();
  const Result<ControlBlock> other = ControlBlock::open(owner, Access::read);
  ASSERT_TRUE(other.ok()) << other.status().to_string();
  EXPECT_EQ(other->identity().run, owner.run);
  EXPECT_EQ(other->identity().rank, 3U);
  EXPECT_EQ(other->identity().rank_count, 4U);
  EXPECT_TRUE(other->owner_alive());
  EXPECT_TRUE(own->unlink().ok());
}

TEST(ControlBlock, NeverShowsASlotThatNobodyWouldLookFor) {
  const test::SegmentFolder folder;
  const SegmentOwner owner = folder.owner();
  const ControlBlock own = *ControlBlock::create(owner, identity_of(owner));
  for (const bool kept : {true, false}) {
    own.begin_fill(0, {.step = 40, .run = *UniqueId::random(), .number = 12}, 7);
    own.cell(0).end_fill(/*summed=*/false, kept);
    EXPECT_FALSE(own.slot(0).restartable);
    own.cell(0).mark_restartable();
    EXPECT_EQ(own.slot(0).restartable, kept);
  }
  EXPECT_TRUE(own.unlink().ok());
}

TEST(ControlBlock, TakesASlotThroughItsLife) {
  const test::SegmentFolder folder;
  const SegmentOwner owner = folder.owner();
  const ControlBlock own = *ControlBlock::create(owner, identity_of(owner));
  const ControlBlock other = *ControlBlock::open(owner, Access::read_write);
  EXPECT_EQ(other.slot(1).state, SlotState::empty);
  const CheckpointId checkpoint{.step = 40, .run = *UniqueId::random(), .number = 12};
  own.begin_fill(1, checkpoint, 7);
  EXPECT_EQ(other.slot(1).state, SlotState::filling);
  EXPECT_FALSE(other.cell(1).begin_drain(40));
  own.cell(1).end_fill(true);
  EXPECT_EQ(other.slot(1).state, SlotState::full);
  EXPECT_TRUE(other.slot(1).restartable);
  EXPECT_EQ(other.slot(1).fill_number, 7U);
  EXPECT_EQ(other.checkpoint(1), checkpoint);
  EXPECT_FALSE(other.cell(1).begin_drain(39));
  EXPECT_TRUE(other.cell(1).begin_drain(40));
  EXPECT_FALSE(other.cell(1).begin_drain(40));
  EXPECT_EQ(own.slot(1).state, SlotState::draining);
  other.cell(1).end_drain(Status(StatusCode::no_space, "full", "disk", "empty it"));
  const SlotNews news = own.slot(1);
  EXPECT_EQ(news.state, SlotState::drained);
  EXPECT_EQ(news.outcome.code(), StatusCode::no_space);
  EXPECT_EQ(news.outcome.to_string(), Status(StatusCode::no_space, "full", "disk", "empty it").to_string());
  own.cell(1).mark_overwritten();
  EXPECT_FALSE(other.slot(1).restartable);
  EXPECT_EQ(other.slot(0).state, SlotState::empty);
  EXPECT_TRUE(own.unlink().ok());
}

TEST(ControlBlock, OfAnEarlierVersionSaysOfASnapshotOnlyTheStep) {
  const test::SegmentFolder folder;
  const SegmentOwner owner = folder.owner();
  const ControlBlock own = *ControlBlock::create(owner, identity_of(owner));
  own.begin_fill(0, {.step = 40, .run = *UniqueId::random(), .number = 12}, 7);
  own.cell(0).end_fill(true);
  const std::string path = path_on_machine(owner.control_path());
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 64);
  const Result<ControlBlock> other = ControlBlock::open(owner, Access::read_write);
  ASSERT_TRUE(other.ok()) << other.status().to_string();
  EXPECT_EQ(other->checkpoint(0), CheckpointId{.step = 40});
  EXPECT_TRUE(own.unlink().ok());
}

TEST(ControlBlock, CutsLongTextsBetweenCharacters) {
  const test::SegmentFolder folder;
  const SegmentOwner owner = folder.owner();
  const ControlBlock own = *ControlBlock::create(owner, identity_of(owner));
  std::string text = "x";
  for (int i = 0; i < 1000; ++i) text += "ü";
  own.cell(0).begin_fill(1, 1);
  own.cell(0).end_fill(true);
  ASSERT_TRUE(own.cell(0).begin_drain(1));
  own.cell(0).end_drain(Status::io_error(text, text, text));
  const std::string_view message = std::string_view(text).substr(0, 299);
  EXPECT_EQ(own.slot(0).outcome.message(), message);
  EXPECT_EQ(own.slot(0).outcome.hint(), message);
  EXPECT_TRUE(own.unlink().ok());
}

TEST(ControlBlock, PassesNewsOnWhole) {
  const test::SegmentFolder folder;
  const SegmentOwner owner = folder.owner();
  const ControlBlock own = *ControlBlock::create(owner, identity_of(owner));
  ASSERT_TRUE(own.news());
  EXPECT_FALSE(own.news()->newest_persistent);
  std::thread writer([&] {
    for (uint64_t i = 1; i <= 3000; ++i) {
      GroupNews news;
      news.newest_persistent = news.finished_step = i;
      news.bytes_to_write = news.bytes_written = i;
      news.last_error = Status::io_error(std::to_string(i));
      own.post(news);
    }
  });
  uint64_t last = 0;
  while (last < 3000) {
    const std::optional<GroupNews> news = own.news();
    if (!news || !news->finished_step) continue;
    EXPECT_GE(*news->finished_step, last);
    last = *news->finished_step;
    EXPECT_EQ(news->newest_persistent, last);
    EXPECT_EQ(news->bytes_written, last);
    EXPECT_EQ(news->last_error.message(), std::to_string(last));
  }
  writer.join();
  EXPECT_TRUE(own.unlink().ok());
}

TEST(ControlBlock, GivesTheNewsBeforeWhileAWriterIsStoppedInTheMiddle) {
  const test::SegmentFolder folder;
  const SegmentOwner owner = folder.owner();
  const ControlBlock own = *ControlBlock::create(owner, identity_of(owner));
  const SharedSegment raw = *SharedSegment::open(owner.control_path(), Access::read_write);
  // Whatever the writer has written of its news when it is stopped, it has not said yet that they are whole.
  GroupNews news;
  for (const uint64_t step : {7, 8, 9}) {
    news.finished_step = step;
    own.post(news);
    const ByteVector before(raw.data(), raw.data() + raw.size());
    news.finished_step = 1000 + step;
    own.post(news);
    const ByteVector after(raw.data(), raw.data() + raw.size());
    size_t said = 0;  // the last of the numbers that differ: the count of whole news
    for (size_t at = 0; at + 8 <= raw.size() && said < 2; at += 8) {
      if (std::equal(&before[at], &before[at] + 8, &after[at])) continue;
      if (++said == 2) std::copy(&before[at], &before[at] + 8, raw.data() + at);
    }
    ASSERT_EQ(said, 2U);
    ASSERT_TRUE(own.news()) << step;
    EXPECT_EQ(own.news()->finished_step, step);
    news.finished_step = 2000 + step;
    own.post(news);
    EXPECT_EQ(own.news()->finished_step, 2000 + step);
  }
  EXPECT_TRUE(own.unlink().ok());
}

TEST(ControlBlock, WakesWhoWaitsForItsBell) {
  const test::SegmentFolder folder;
  const SegmentOwner owner = folder.owner();
  const ControlBlock own = *ControlBlock::create(owner, identity_of(owner));
  const ControlBlock other = *ControlBlock::open(owner, Access::read_write);
  const uint32_t seen = own.bell().count();
  std::thread ringer([&] { other.bell().ring(); });
  while (own.bell().count() == seen) own.bell().wait(seen, std::chrono::minutes(10));
  ringer.join();
  EXPECT_TRUE(own.unlink().ok());
}

TEST(ControlBlock, RejectsOneThatIsNotOfItsNameCutOffOrOfAnotherVersion) {
  const test::SegmentFolder folder;
  const SegmentOwner owner = folder.owner(), other = folder.owner(1);
  const ControlBlock own = *ControlBlock::create(owner, identity_of(owner));
  ASSERT_EQ(::link(owner.control_path().c_str(), other.control_path().c_str()), 0);
  EXPECT_EQ(ControlBlock::open(other, Access::read).status().code(), StatusCode::corrupt);
  {
    const SharedSegment raw = *SharedSegment::open(owner.control_path(), Access::read_write);
    raw.data()[8] = std::byte{99};
    EXPECT_EQ(ControlBlock::open(owner, Access::read).status().code(), StatusCode::unsupported);
    raw.data()[8] = std::byte{2};
    EXPECT_TRUE(ControlBlock::open(owner, Access::read).ok());
  }
  ASSERT_EQ(::truncate(owner.control_path().c_str(), 200), 0);
  EXPECT_EQ(ControlBlock::open(owner, Access::read).status().code(), StatusCode::corrupt);
  folder.clear();
}

TEST(ControlBlock, SurvivesHostileBytes) {
  const test::SegmentFolder folder;
  const SegmentOwner owner = folder.owner();
  const ControlBlock own = *ControlBlock::create(owner, identity_of(owner));
  const SharedSegment raw = *SharedSegment::open(owner.control_path(), Access::read_write);
  const ByteVector good(raw.data(), raw.data() + raw.size());
  std::mt19937_64 random(11);
  for (int round = 0; round < 3000; ++round) {
    std::copy(good.begin(), good.end(), raw.data());
    const bool spare_identity = random() % 2 == 0;
    for (uint64_t i = 0; i < 1 + random() % 200; ++i) {
      const uint64_t at = random() % raw.size();
      if (!spare_identity || at >= 128) raw.data()[at] = static_cast<std::byte>(random());
    }
    const Result<ControlBlock> control = ControlBlock::open(owner, Access::read);
    if (!control.ok()) continue;
    ASSERT_LE(control->identity().slot_count, kSlotsMax);
    for (uint32_t slot = 0; slot < kSlotsMax; ++slot) (void)control->slot(slot);
    (void)control->news();
    (void)control->owner_alive();
  }
  EXPECT_TRUE(own.unlink().ok());
}

SlotDescription sample_description() {
  SlotDescription description;
  description.run = *UniqueId::random();
  description.step = 5;
  description.fill_number = 2;
  description.image_bytes = 700'000;
  description.crcs_offset = 512;
  description.crc_count = 2 + 1 + 1;
  description.data_offset = 4096;
  description.data_bytes = 600'000;
  description.parts = {{0, std::nullopt, {4096, 400'000, {}}},
                       {400'000, 3, {16, 1000, {{10, 4000}, {10, 400}}}},
                       {500'000, std::nullopt, {404'096, 200'000, {}}}};
  return description;
}

TEST(SlotDescription, IsReadBack) {
  const SlotDescription description = sample_description();
  ByteVector segment;
  encode_slot_description(description, segment);
  segment.resize(description.segment_bytes());
  const Result<SlotDescription> decoded = decode_slot_description(segment);
  ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
  EXPECT_EQ(*decoded, description);
}

TEST(SlotDescription, RejectsPlacesThatAreWrong) {
  auto rejected = [](const auto& change) {
    SlotDescription description = sample_description();
    change(description);
    ByteVector segment;
    encode_slot_description(description, segment);
    segment.resize(sample_description().segment_bytes());
    return decode_slot_description(segment).status().code() == StatusCode::corrupt;
  };
  EXPECT_FALSE(rejected([](SlotDescription&) {}));
  EXPECT_TRUE(rejected([](SlotDescription& d) { d.image_bytes += 1; }));
  EXPECT_TRUE(rejected([](SlotDescription& d) { d.crc_count += 1; }));
  EXPECT_TRUE(rejected([](SlotDescription& d) { d.crcs_offset = 1ULL << 62; }));
  EXPECT_TRUE(rejected([](SlotDescription& d) { d.crcs_offset += 1; }));
  EXPECT_TRUE(rejected([](SlotDescription& d) { d.data_bytes += 1; }));
  EXPECT_TRUE(rejected([](SlotDescription& d) { d.data_offset = ~0ULL; }));
  EXPECT_TRUE(rejected([](SlotDescription& d) { d.parts[1].image_offset += 1; }));
  EXPECT_TRUE(rejected([](SlotDescription& d) { d.parts[2].region.first_byte += 1; }));
  EXPECT_TRUE(rejected([](SlotDescription& d) { d.parts[2].region.first_byte = ~0ULL; }));
  EXPECT_TRUE(rejected([](SlotDescription& d) { d.parts[0].region.first_byte = 0; }));
  EXPECT_TRUE(rejected([](SlotDescription& d) { d.parts[1].region.steps[0].stride_bytes = ~0ULL; }));
  EXPECT_TRUE(rejected([](SlotDescription& d) { d.parts[1].region.steps[0].count = ~0ULL; }));
  EXPECT_TRUE(rejected([](SlotDescription& d) { d.parts[1].region.steps[0].count = 0; }));
  EXPECT_TRUE(rejected([](SlotDescription& d) { d.parts.pop_back(); }));
}

TEST(SlotDescription, RejectsEveryFlippedBitAndEveryCut) {
  ByteVector encoded;
  encode_slot_description(sample_description(), encoded);
  ByteVector segment = encoded;
  segment.resize(sample_description().segment_bytes());
  for (size_t bit = 0; bit < encoded.size() * 8; ++bit) {
    segment[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_FALSE(decode_slot_description(segment).ok()) << bit;
    segment[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  }
  for (size_t bytes = 0; bytes < encoded.size(); ++bytes) {
    EXPECT_FALSE(decode_slot_description(ByteSpan(segment).first(bytes)).ok()) << bytes;
  }
}

}  // namespace
}  // namespace varve
