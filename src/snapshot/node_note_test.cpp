#include "snapshot/node_note.h"

#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "hash/score.h"
#include "snapshot/test_segments.h"

namespace varve {
namespace {
NodeNote some_note() {
  NodeNote note;
  note.run = *UniqueId::random();
  note.rank_count = 8;
  note.job = "heat";
  note.levels = "memory; local:/nvme/varve; dir:/lustre/varve";
  note.node = "n2";
  note.node_ordinal = 1;
  note.node_count = 2;
  note.scheme = "aware";
  note.codec = "balanced";
  note.groups = {{.ordinal = 0, .count = 2, .members = {4, 5}}, {.ordinal = 1, .count = 2, .members = {6, 7}}};
  note.spill_folders = {"/tmp"};
  note.earlier = {{.run = *UniqueId::random(), .last_step = 12}};
  return note;
}

TEST(NodeNote, ComesBackFromItsBytes) {
  const NodeNote note = some_note();
  EXPECT_EQ(*decode_node_note(encode_node_note(note)), note);
}

TEST(NodeNote, IsRefusedWhereverAByteIsWrong) {
  const ByteVector whole = encode_node_note(some_note());
  for (size_t i = 0; i < whole.size(); ++i) {
    ByteVector damaged = whole;
    damaged[i] ^= std::byte{0x40};
    EXPECT_FALSE(decode_node_note(damaged).ok()) << "byte " << i;
    EXPECT_FALSE(decode_node_note(ByteSpan(whole).first(i)).ok()) << "the first " << i;
  }
}

TEST(NodeNote, IsFoundByWhoKnowsOnlyTheFolder) {
  const test::SegmentFolder folder;
  const NodeNote first = some_note(), second = some_note();
  ASSERT_TRUE(write_node_note(folder.owner(), first).ok());
  ASSERT_TRUE(write_node_note(folder.owner(), second).ok());
  std::vector<Status> damaged;
  Result<std::vector<FoundNote>> found = find_node_notes(folder.family().folder, damaged);
  ASSERT_TRUE(found.ok());
  // Other jobs of this user may be there, too.
  std::erase_if(*found, [&](const FoundNote& one) { return one.speaker.run != folder.owner().run; });
  ASSERT_EQ(found->size(), 1u);
  EXPECT_EQ(found->front().note, second);
  EXPECT_EQ(found->front().speaker.run, folder.owner().run);
  EXPECT_EQ(found->front().speaker.family.job_key, folder.family().job_key);
  ASSERT_TRUE(remove_node_note(folder.owner()).ok());
  found = find_node_notes(folder.family().folder, damaged);
  EXPECT_TRUE(std::none_of(found->begin(), found->end(),
                           [&](const FoundNote& one) { return one.speaker.run == folder.owner().run; }));
}

TEST(NodeNote, IsWrittenOverWhereThereIsNoRoomForAnother) {
  const test::SegmentFolder folder;
  const NodeNote first = some_note();
  ASSERT_TRUE(write_node_note(folder.owner(), first).ok());
  const std::string in_the_way = folder.owner().path("note-draft");
  ASSERT_EQ(::mkdir(in_the_way.c_str(), 0700), 0);
  const NodeNote second = some_note();
  EXPECT_TRUE(write_node_note(folder.owner(), second).ok());
  std::vector<Status> damaged;
  const std::vector<FoundNote> found = find_node_notes(folder.family().folder, damaged).value();
  EXPECT_TRUE(std::any_of(found.begin(), found.end(), [&](const FoundNote& one) { return one.note == second; }));
  ASSERT_TRUE(remove_node_note(folder.owner()).ok());
  EXPECT_FALSE(write_node_note(folder.owner(), some_note()).ok()) << "there is none to write over";
  ASSERT_EQ(::rmdir(in_the_way.c_str()), 0);
}

TEST(NodeNote, OfAnEarlierVersionTellsOfNoEarlierRuns) {
  NodeNote note = some_note();
  note.earlier.clear();
  ByteVector raw = encode_node_note(note);
  constexpr size_t kHeadBytes = 12;
  raw.pop_back();  // their count
  const ByteSpan body = ByteSpan(raw).subspan(kHeadBytes);
  ByteVector head;
  ByteWriter out(head);
  out.bytes(ByteSpan(raw).first(4));
  out.le32(crc32c(body));
  out.le32(static_cast<uint32_t>(body.size()));
  std::copy(head.begin(), head.end(), raw.begin());
  EXPECT_EQ(*decode_node_note(raw), note);
}

TEST(NodeDrainLock, IsHeldByOneAtATimeAndLeavesNoFile) {
  const test::SegmentFolder folder;
  EXPECT_FALSE(NodeDrainLock::is_taken(folder.family()));
  {
    Result<std::optional<NodeDrainLock>> taken = NodeDrainLock::try_take(folder.family());
    ASSERT_TRUE(taken.ok() && taken->has_value());
    EXPECT_TRUE(NodeDrainLock::is_taken(folder.family()));
    Result<std::optional<NodeDrainLock>> second = NodeDrainLock::try_take(folder.family());
    ASSERT_TRUE(second.ok());
    EXPECT_FALSE(second->has_value());
  }
  EXPECT_FALSE(NodeDrainLock::is_taken(folder.family()));
  EXPECT_TRUE(folder.files().empty());
}
}  // namespace
}  // namespace varve
