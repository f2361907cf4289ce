#include "format/frame.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace varve {
namespace {

FrameHeader some_header() { return {FrameKind::node, 0x0123456789abcdef, 4711, 300, 70'000, 0xdeadbeef, 0xfeedface}; }

ByteVector encoded(const FrameHeader& header) {
  ByteVector raw(kFrameHeaderBytes);
  encode_frame_header(header, raw.data());
  return raw;
}

/// Flips each bit in turn and calls `check` with the damaged bytes.
template <class Check>
void with_each_bit_flipped(const ByteVector& whole, const Check& check) {
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    ByteVector damaged = whole;
    damaged[bit / 8] ^= std::byte{1} << (bit % 8);
    check(damaged, bit);
  }
}

TEST(FrameHeader, ComesBackAsItWas) {
  const FrameHeader header = some_header();
  const Result<FrameHeader> decoded = decode_frame_header(encoded(header), header.arena_tag, header.offset);
  ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
  EXPECT_EQ(decoded->kind, header.kind);
  EXPECT_EQ(decoded->meta_bytes, header.meta_bytes);
  EXPECT_EQ(decoded->body_bytes, header.body_bytes);
  EXPECT_EQ(decoded->meta_crc, header.meta_crc);
  EXPECT_EQ(decoded->body_crc, header.body_crc);
  EXPECT_EQ(decoded->frame_bytes(), kFrameHeaderBytes + 70'300);
}

TEST(FrameHeader, IsRefusedWithAnyBitFlipped) {
  const FrameHeader header = some_header();
  with_each_bit_flipped(encoded(header), [&](const ByteVector& damaged, size_t bit) {
    EXPECT_EQ(decode_frame_header(damaged, header.arena_tag, header.offset).status().code(), StatusCode::corrupt)
        << "bit " << bit;
  });
}

TEST(FrameHeader, IsRefusedCutOffAnywhere) {
  const FrameHeader header = some_header();
  const ByteVector whole = encoded(header);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_EQ(decode_frame_header(ByteSpan(whole).first(bytes), header.arena_tag, header.offset).status().code(),
              StatusCode::corrupt);
  }
}

TEST(FrameHeader, IsRefusedAtAnotherPlaceOrInAnotherArena) {
  const FrameHeader header = some_header();
  const ByteVector raw = encoded(header);
  EXPECT_FALSE(decode_frame_header(raw, header.arena_tag, header.offset + 4096).ok());
  EXPECT_FALSE(decode_frame_header(raw, header.arena_tag + 1, header.offset).ok());
}

TEST(FrameHeader, MayNotDeclareMoreThanTheLimits) {
  FrameHeader header = some_header();
  header.body_bytes = kFrameBodyBytesMax + 1;
  EXPECT_FALSE(decode_frame_header(encoded(header), header.arena_tag, header.offset).ok());
  header.body_bytes = UINT64_MAX;
  EXPECT_FALSE(decode_frame_header(encoded(header), header.arena_tag, header.offset).ok());
  header = some_header();
  header.meta_bytes = static_cast<uint32_t>(kFrameMetaBytesMax) + 1;
  EXPECT_FALSE(decode_frame_header(encoded(header), header.arena_tag, header.offset).ok());
  header = some_header();
  header.kind = static_cast<FrameKind>(4);
  EXPECT_FALSE(decode_frame_header(encoded(header), header.arena_tag, header.offset).ok());
}

TEST(ArenaHeader, ComesBackAndIsRefusedDamagedOrCutOff) {
  const ArenaHeader header{UniqueId::random().value(), UniqueId::random().value(), ScoreAlgorithm::sha256, 20};
  ByteVector raw;
  encode_arena_header(header, raw);
  ASSERT_EQ(raw.size(), kArenaHeaderBytes);
  const Result<ArenaHeader> decoded = decode_arena_header(raw);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->arena, header.arena);
  EXPECT_EQ(decoded->store, header.store);
  EXPECT_EQ(decoded->algorithm, header.algorithm);
  EXPECT_EQ(decoded->score_bytes, header.score_bytes);
  with_each_bit_flipped(raw, [](const ByteVector& damaged, size_t bit) {
    EXPECT_FALSE(decode_arena_header(damaged).ok()) << "bit " << bit;
  });
  for (size_t bytes = 0; bytes < raw.size(); ++bytes)
    EXPECT_FALSE(decode_arena_header(ByteSpan(raw).first(bytes)).ok());
}

TEST(ArenaHeader, OfANewerVersionIsUnsupportedAndNotCorrupt) {
  ByteVector raw;
  encode_arena_header({}, raw);
  raw[8] = std::byte{kArenaFormatVersion + 1};
  store_le<uint32_t>(raw.data() + 60, crc32c(ByteSpan(raw).first(60)));
  EXPECT_EQ(decode_arena_header(raw).status().code(), StatusCode::unsupported);
}

TEST(ArenaFooter, ComesBackAndIsRefusedDamagedOrCutOff) {
  ByteVector raw;
  encode_arena_footer({0x1122334455667788, 1234, 5678}, raw);
  ASSERT_EQ(raw.size(), kArenaFooterBytes);
  const Result<ArenaFooter> decoded = decode_arena_footer(raw);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->arena_tag, 0x1122334455667788u);
  EXPECT_EQ(decoded->index_offset, 1234u);
  EXPECT_EQ(decoded->arena_bytes, 5678u);
  with_each_bit_flipped(raw, [](const ByteVector& damaged, size_t bit) {
    EXPECT_FALSE(decode_arena_footer(damaged).ok()) << "bit " << bit;
  });
  for (size_t bytes = 0; bytes < raw.size(); ++bytes)
    EXPECT_FALSE(decode_arena_footer(ByteSpan(raw).first(bytes)).ok());
}

Score score_from(uint64_t number, size_t score_bytes) {
  Score score;
  for (size_t i = 0; i < score_bytes; ++i) score.bytes[i] = static_cast<std::byte>(number >> (8 * (i % 8)) ^ i);
  return score;
}

std::vector<FrameEntry> arbitrary_entries(size_t score_bytes) {
  std::vector<FrameEntry> entries(*rc::gen::inRange<size_t>(0, 50));
  uint64_t offset = 0;
  for (FrameEntry& entry : entries) {
    offset += *rc::gen::inRange<uint64_t>(0, uint64_t{1} << 40);
    entry = {score_from(*rc::gen::arbitrary<uint64_t>(), score_bytes),
             offset,
             *rc::gen::inRange<uint32_t>(0, kFrameMetaBytesMax + 1),
             *rc::gen::inRange<uint64_t>(0, kFrameBodyBytesMax + 1),
             *rc::gen::arbitrary<uint64_t>(),
             *rc::gen::arbitrary<uint64_t>(),
             *rc::gen::arbitrary<uint64_t>()};
  }
  return entries;
}

bool equal(const std::vector<FrameEntry>& a, const std::vector<FrameEntry>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const FrameEntry& x, const FrameEntry& y) {
    return x.score == y.score && x.offset == y.offset && x.meta_bytes == y.meta_bytes && x.body_bytes == y.body_bytes &&
           x.raw_bytes == y.raw_bytes && x.chunk_count == y.chunk_count && x.missing_bytes == y.missing_bytes;
  });
}

RC_GTEST_PROP(ArenaIndex, ComesBackAsItWasAndIsRefusedCutOff, ()) {
  const size_t score_bytes = *rc::gen::element<size_t>(20, 32);
  const ArenaIndex index{arbitrary_entries(score_bytes), arbitrary_entries(score_bytes)};
  ByteVector raw;
  encode_arena_index(index, score_bytes, raw);
  const Result<ArenaIndex> decoded = decode_arena_index(raw, score_bytes);
  RC_ASSERT(decoded.ok());
  RC_ASSERT(equal(decoded->packs, index.packs));
  RC_ASSERT(equal(decoded->nodes, index.nodes));
  for (size_t bytes = 0; bytes < raw.size(); ++bytes) {
    RC_ASSERT(!decode_arena_index(ByteSpan(raw).first(bytes), score_bytes).ok());
  }
  raw.push_back(std::byte{0});
  RC_ASSERT(!decode_arena_index(raw, score_bytes).ok());
}

TEST(ArenaIndex, SizesNothingByACountThatCannotBeTrue) {
  ByteVector raw;
  ByteWriter w(raw);
  w.varint(uint64_t{1} << 60);
  raw.resize(100);
  EXPECT_EQ(decode_arena_index(raw, 32).status().code(), StatusCode::corrupt);
}

TEST(ArenaIndex, RefusesOffsetsThatWrapAround) {
  ByteVector raw;
  ByteWriter w(raw);
  w.varint(2);
  for (uint64_t step : {UINT64_MAX, uint64_t{1}}) {
    write_score(w, Score{}, 32);
    for (uint64_t field : {step, uint64_t{1}, uint64_t{1}, uint64_t{1}, uint64_t{1}, uint64_t{0}}) w.varint(field);
  }
  w.varint(0);
  EXPECT_EQ(decode_arena_index(raw, 32).status().code(), StatusCode::corrupt);
}

}  // namespace
}  // namespace varve
