#include "format/pack.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>
#include <random>

namespace varve {
namespace {

const ScoreFunction kScore = ScoreFunction::preferred();

ByteVector random_bytes(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  ByteVector bytes(count);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

/// A pack of chunks of these lengths over `raw`, without a recipe.
PackMeta meta_of(ByteSpan raw, const std::vector<uint32_t>& lengths) {
  PackMeta meta;
  meta.class_key = "/Density_F32LE_Array3D";
  size_t offset = 0;
  for (uint32_t bytes : lengths) {
    meta.chunks.push_back({bytes, kScore(raw.subspan(offset, bytes))});
    offset += bytes;
  }
  meta.score = pack_score(kScore, meta.chunks);
  meta.recipe = {std::byte{0}};
  return meta;
}

struct WholePack {
  ByteVector raw;
  PackMeta meta;
};
WholePack whole_pack(const std::vector<uint32_t>& lengths, uint64_t seed = 1) {
  WholePack whole;
  whole.raw = random_bytes(std::accumulate(lengths.begin(), lengths.end(), size_t{0}), seed);
  whole.meta = meta_of(whole.raw, lengths);
  return whole;
}

/// `whole` without the chunks that are not `held`.
std::pair<PackMeta, ByteVector> thinned(const WholePack& whole, const std::vector<bool>& held) {
  PackMeta meta = whole.meta;
  ByteVector body;
  size_t offset = 0;
  bool run_held = true;
  meta.held_runs = {0};
  for (size_t i = 0; i < held.size(); ++i) {
    if (held[i] != run_held) meta.held_runs.push_back(0);
    run_held = held[i];
    ++meta.held_runs.back();
    if (held[i])
      body.insert(body.end(), whole.raw.begin() + static_cast<ptrdiff_t>(offset),
                  whole.raw.begin() + static_cast<ptrdiff_t>(offset + meta.chunks[i].bytes));
    offset += meta.chunks[i].bytes;
  }
  return {meta, body};
}

std::vector<uint32_t> arbitrary_lengths() {
  std::vector<uint32_t> lengths(*rc::gen::inRange<size_t>(1, 30));
  for (uint32_t& bytes : lengths) bytes = *rc::gen::inRange<uint32_t>(1, 40);
  return lengths;
}

Result<Pack> decode(const PackMeta& meta, ByteSpan body) {
  Buffer copy(body.size());
  std::copy(body.begin(), body.end(), MutableByteSpan(copy).begin());
  const ByteSpan view = copy;
  return Pack::decode(meta, std::move(copy), view, kScore);
}

bool equal(const PackMeta& a, const PackMeta& b) {
  return a.score == b.score && a.class_key == b.class_key && a.recipe == b.recipe && a.needs == b.needs &&
         a.held_runs == b.held_runs &&
         std::equal(a.chunks.begin(), a.chunks.end(), b.chunks.begin(), b.chunks.end(),
                    [](const ChunkEntry& x, const ChunkEntry& y) { return x.bytes == y.bytes && x.score == y.score; });
}

RC_GTEST_PROP(PackMeta, ComesBackAsItWasAndIsRefusedCutOff, ()) {
  const size_t score_bytes = *rc::gen::element<size_t>(20, 32);
  const ScoreFunction score = ScoreFunction::create(kScore.algorithm(), score_bytes).value();
  PackMeta meta;
  meta.class_key = *rc::gen::arbitrary<std::string>();
  meta.recipe = *rc::gen::element(ByteVector{std::byte{0}}, random_bytes(17, 3));
  meta.needs.resize(*rc::gen::inRange<size_t>(0, kPackNeedsMax + 1));
  for (uint32_t bytes : arbitrary_lengths()) meta.chunks.push_back({bytes, score(random_bytes(bytes, bytes))});
  meta.score = pack_score(score, meta.chunks);
  if (*rc::gen::arbitrary<bool>()) {
    const uint64_t held = *rc::gen::inRange<uint64_t>(0, meta.chunks.size());
    meta.held_runs = {held, meta.chunks.size() - held};
  }
  ByteVector raw;
  encode_pack_meta(meta, score_bytes, raw);
  const Result<PackMeta> decoded = decode_pack_meta(raw, score);
  RC_ASSERT(decoded.ok());
  RC_ASSERT(equal(*decoded, meta));
  for (size_t bytes = 0; bytes < raw.size(); ++bytes) {
    RC_ASSERT(!decode_pack_meta(ByteSpan(raw).first(bytes), score).ok());
  }
}

TEST(PackMeta, NeverDecodesToAnotherTableOfChunks) {
  const WholePack whole = whole_pack({64, 64, 64, 10});
  ByteVector raw;
  encode_pack_meta(whole.meta, kScore.score_bytes(), raw);
  for (size_t bit = 0; bit < 8 * raw.size(); ++bit) {
    ByteVector damaged = raw;
    damaged[bit / 8] ^= std::byte{1} << (bit % 8);
    const Result<PackMeta> decoded = decode_pack_meta(damaged, kScore);
    if (!decoded.ok()) continue;
    ASSERT_EQ(decoded->score, whole.meta.score) << "bit " << bit;
    ASSERT_EQ(decoded->raw_bytes(), whole.meta.raw_bytes()) << "bit " << bit;
  }
}

TEST(PackMeta, HasTheSameScoreWhateverItsCodecAndWhateverItHolds) {
  const WholePack whole = whole_pack({64, 64});
  PackMeta other = thinned(whole, {false, true}).first;
  other.recipe = random_bytes(9, 1);
  ByteVector raw;
  encode_pack_meta(other, kScore.score_bytes(), raw);
  EXPECT_EQ(decode_pack_meta(raw, kScore).value().score, whole.meta.score);
}

/// The fields of a pack's meta part up to its table of chunks.
ByteVector meta_prefix() {
  ByteVector raw;
  ByteWriter w(raw);
  write_score(w, Score{}, kScore.score_bytes());
  w.text("key");
  w.varint(1);
  w.u8(0);
  w.varint(0);  // needs
  return raw;
}

TEST(PackMeta, RefusesCountsThatCannotBeTrueBeforeItAllocates) {
  for (uint64_t count : {uint64_t{1} << 20, uint64_t{1} << 60, UINT64_MAX}) {
    ByteVector runs = meta_prefix();
    ByteWriter(runs).varint(count);
    EXPECT_EQ(decode_pack_meta(runs, kScore).status().code(), StatusCode::corrupt);
    ByteVector chunks = meta_prefix();
    ByteWriter(chunks).varint(0);
    ByteWriter(chunks).varint(count);
    EXPECT_EQ(decode_pack_meta(chunks, kScore).status().code(), StatusCode::corrupt);
  }
}

TEST(PackMeta, RefusesChunksThatAddUpToMoreThanAPack) {
  PackMeta meta;
  meta.recipe = {std::byte{0}};
  meta.chunks.assign(1000, {static_cast<uint32_t>(kPackBytesMax), Score{}});
  meta.score = pack_score(kScore, meta.chunks);
  ByteVector raw;
  encode_pack_meta(meta, kScore.score_bytes(), raw);
  EXPECT_EQ(decode_pack_meta(raw, kScore).status().code(), StatusCode::corrupt);
}

TEST(PackMeta, RefusesHeldRunsThatDoNotCoverItsChunks) {
  WholePack whole = whole_pack({8, 8, 8});
  for (const std::vector<uint64_t>& runs :
       std::vector<std::vector<uint64_t>>{{2}, {4}, {1, 1}, {UINT64_MAX, 4}, {0, 0, 0}}) {
    whole.meta.held_runs = runs;
    ByteVector raw;
    encode_pack_meta(whole.meta, kScore.score_bytes(), raw);
    EXPECT_FALSE(decode_pack_meta(raw, kScore).ok());
  }
}

RC_GTEST_PROP(Pack, GivesEveryRangeThatItHoldsAndNoOther, ()) {
  const WholePack whole = whole_pack(arbitrary_lengths(), *rc::gen::arbitrary<uint64_t>());
  const auto held = *rc::gen::container<std::vector<bool>>(whole.meta.chunks.size(), rc::gen::arbitrary<bool>());
  auto [meta, body] = thinned(whole, held);
  Result<Pack> pack = decode(meta, body);
  RC_ASSERT(pack.ok());
  RC_ASSERT(pack->verify_all().ok());
  const uint64_t total = whole.raw.size();
  for (int i = 0; i < 20; ++i) {
    const uint64_t offset = *rc::gen::inRange<uint64_t>(0, total + 5);
    const uint64_t bytes = *rc::gen::inRange<uint64_t>(0, total + 5);
    bool wanted = bytes > 0 && offset + bytes <= total;
    uint64_t at = 0;
    for (size_t chunk = 0; chunk < held.size() && wanted; at += meta.chunks[chunk++].bytes) {
      if (at < offset + bytes && at + meta.chunks[chunk].bytes > offset) wanted = held[chunk];
    }
    const Extent extents[] = {{0, meta.chunks[0].bytes}, {offset, bytes}};
    Result<Pack> unchecked = decode(meta, body);
    RC_ASSERT(unchecked->verify(std::span(extents).last(1)).ok() == wanted);
    RC_ASSERT(unchecked->verify(extents).ok() == (wanted && held[0]));
    const Result<ByteSpan> range = pack->range(offset, bytes);
    RC_ASSERT(range.ok() == wanted);
    if (wanted) RC_ASSERT(std::equal(range->begin(), range->end(), whole.raw.begin() + static_cast<ptrdiff_t>(offset)));
  }
}

TEST(Pack, RefusesRangesNearTheEndOfNumbers) {
  const WholePack whole = whole_pack({100, 100});
  Result<Pack> pack = decode(whole.meta, whole.raw);
  ASSERT_TRUE(pack.ok());
  for (auto [offset, bytes] : std::vector<std::pair<uint64_t, uint64_t>>{{0, UINT64_MAX},
                                                                         {199, UINT64_MAX},
                                                                         {UINT64_MAX, 1},
                                                                         {UINT64_MAX, UINT64_MAX},
                                                                         {200, 1},
                                                                         {1, UINT64_MAX - 1}}) {
    EXPECT_EQ(pack->range(offset, bytes).status().code(), StatusCode::corrupt) << offset << " + " << bytes;
  }
}

TEST(Pack, KeepsADamagedChunkAndGivesItsNeighbours) {
  WholePack whole = whole_pack({100, 100, 100});
  whole.raw[150] ^= std::byte{1};
  Result<Pack> pack = decode(whole.meta, whole.raw);
  ASSERT_TRUE(pack.ok());
  EXPECT_TRUE(pack->range(0, 100).ok());
  EXPECT_TRUE(pack->range(200, 100).ok());
  EXPECT_EQ(pack->range(99, 2).status().code(), StatusCode::corrupt);
  EXPECT_EQ(pack->range(100, 1).status().code(), StatusCode::corrupt);
  const Extent neighbours[] = {{200, 100}, {0, 100}}, all[] = {{200, 100}, {150, 1}};
  EXPECT_TRUE(pack->verify(neighbours).ok());
  EXPECT_EQ(pack->verify(all).code(), StatusCode::corrupt);
  EXPECT_EQ(pack->verify_all().code(), StatusCode::corrupt);
}

TEST(Pack, KnowsWhichOfItsChunksAreWhole) {
  WholePack whole = whole_pack({100, 50, 100, 10});
  EXPECT_EQ(decode(whole.meta, whole.raw)->whole_extents(), (std::vector<Extent>{{0, 260}}));
  whole.raw[120] ^= std::byte{1};
  EXPECT_EQ(decode(whole.meta, whole.raw)->whole_extents(), (std::vector<Extent>{{0, 100}, {150, 110}}));
  const auto [meta, body] = thinned(whole, {false, true, true, false});
  EXPECT_EQ(decode(meta, body)->whole_extents(), (std::vector<Extent>{{150, 100}}));
}

TEST(Pack, IsPutTogetherFromTwoCopies) {
  const WholePack whole = whole_pack({100, 50, 100, 10});
  ByteVector damaged = whole.raw;
  damaged[10] ^= std::byte{1};
  damaged[255] ^= std::byte{1};
  Pack one = decode(whole.meta, damaged).value();
  const auto [meta, body] = thinned(whole, {true, false, false, false});
  Pack other = decode(meta, body).value();
  Pack both = Pack::united(one, other);
  EXPECT_EQ(both.whole_extents(), (std::vector<Extent>{{0, 250}}));
  const Result<ByteSpan> range = both.range(0, 250);
  ASSERT_TRUE(range.ok()) << range.status().to_string();
  EXPECT_TRUE(std::equal(range->begin(), range->end(), whole.raw.begin()));
  EXPECT_EQ(both.range(250, 1).status().code(), StatusCode::corrupt);
  Pack third = decode(whole.meta, whole.raw).value();
  EXPECT_TRUE(Pack::united(both, third).verify_all().ok());
  EXPECT_TRUE(Pack::united(third, both).range(0, 260).ok());
}

TEST(Pack, IsRefusedIfItsBodyHasAnotherSizeThanItsChunks) {
  const WholePack whole = whole_pack({100, 100});
  ByteVector shorter = whole.raw, longer = whole.raw;
  shorter.pop_back();
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode(whole.meta, shorter).ok());
  EXPECT_FALSE(decode(whole.meta, longer).ok());
}

TEST(Pack, ThatNeedsOthersIsUnsupported) {
  WholePack whole = whole_pack({100});
  whole.meta.needs.push_back(Score{});
  EXPECT_EQ(decode(whole.meta, whole.raw).status().code(), StatusCode::unsupported);
}

TEST(Pack, OfACodecThatThisBuildLacksIsUnsupported) {
  WholePack whole = whole_pack({100});
  whole.meta.recipe.clear();
  ByteWriter recipe(whole.meta.recipe);
  recipe.u8(1);
  recipe.varint(9999);
  recipe.varint(100);
  recipe.varint(0);
  const Status status = decode(whole.meta, whole.raw).status();
  EXPECT_EQ(status.code(), StatusCode::unsupported);
  EXPECT_NE(status.to_string().find("9999"), std::string::npos) << status.to_string();
}

TEST(Pack, OfNoChunksIsEmpty) {
  PackMeta meta;
  meta.recipe = {std::byte{0}};
  Result<Pack> pack = decode(meta, ByteSpan());
  ASSERT_TRUE(pack.ok());
  EXPECT_FALSE(pack->range(0, 1).ok());
  EXPECT_TRUE(pack->verify_all().ok());
}

}  // namespace
}  // namespace varve
