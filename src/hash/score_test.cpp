#include "hash/score.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>
#include <thread>
#include <utility>

namespace varve {
namespace {

/// The input of BLAKE3's official test vectors: 0, 1, ... 250, 0, 1, ...
ByteVector counting_bytes(size_t count) {
  ByteVector bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i % 251);
  return bytes;
}

TEST(Blake3Score, AgreesWithTheOfficialVectors) {
  auto score = ScoreFunction::create(ScoreAlgorithm::blake3, 32);
  if (!score.ok()) GTEST_SKIP() << score.status().to_string();
  const std::pair<size_t, const char*> vectors[] = {
      {0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"},
      {1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"},
      {1023, "10108970eeda3eb932baac1428c7a2163b0e924c9a9e25b35bba72b28f70bd11"},
      {1024, "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7"},
      {1025, "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444"},
      {2048, "e776b6028c7cd22a4d0ba182a8bf62205d2ef576467e838ed6f2529b85fba24a"},
      {31744, "62b6960e1a44bcc1eb1a611a8d6235b6b4b78f32e7abc4fb4c6cdcce94895c47"},
      {102400, "bc3e3d41a1146b069abffad3c0d44860cf664390afce4d9661f7902e7943e085"},
  };
  for (const auto& [length, hex] : vectors) EXPECT_EQ((*score)(counting_bytes(length)).hex(), hex) << length;
}

TEST(Sha256Score, AgreesWithFips180) {
  auto score = ScoreFunction::create(ScoreAlgorithm::sha256, 32);
  ASSERT_TRUE(score.ok()) << score.status().to_string();
  EXPECT_EQ((*score)({}).hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ((*score)(as_bytes("abc")).hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ((*score)(as_bytes("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")).hex(),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ((*score)(as_bytes(std::string(1'000'000, 'a'))).hex(),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(ScoreFunction, KeepsTheFirstTwentyBytesAndZeroesTheRest) {
  for (ScoreAlgorithm algorithm : {ScoreAlgorithm::blake3, ScoreAlgorithm::sha256}) {
    auto whole = ScoreFunction::create(algorithm, 32);
    if (!whole.ok()) continue;
    auto truncated = ScoreFunction::create(algorithm, 20);
    ASSERT_TRUE(truncated.ok());
    EXPECT_EQ(truncated->score_bytes(), 20u);
    const Score long_score = (*whole)(as_bytes("varve"));
    const Score short_score = (*truncated)(as_bytes("varve"));
    EXPECT_EQ(short_score.hex(20), long_score.hex(20));
    EXPECT_EQ(short_score.hex(), long_score.hex(20) + std::string(24, '0'));
    EXPECT_EQ(short_score.prefix(), long_score.prefix());
  }
}

TEST(ScoreFunction, MayBeUsedFirstByManyThreadsAtOnce) {
  const ScoreFunction score = ScoreFunction::preferred();
  const ByteVector data(10'000, std::byte{7});
  std::vector<Score> scores(8);
  std::vector<std::thread> threads;
  threads.reserve(scores.size());
  for (Score& mine : scores) threads.emplace_back([&] { mine = score(data); });
  for (std::thread& thread : threads) thread.join();
  for (const Score& one : scores) EXPECT_EQ(one, score(data));
}

TEST(ScoreFunction, GivesManyInputsTheScoresThatEachHasAlone) {
  const ByteVector data = counting_bytes(3'000'000);
  for (ScoreAlgorithm algorithm : {ScoreAlgorithm::blake3, ScoreAlgorithm::sha256}) {
    for (size_t score_bytes : {20u, 32u}) {
      auto score = ScoreFunction::create(algorithm, score_bytes);
      if (!score.ok()) continue;
      for (size_t length : {0u, 1u, 1000u, 1024u, 2048u, 3072u, 4096u, 8191u, 8192u, 8193u, 16384u, 32768u, 65536u}) {
        for (size_t count : {0u, 1u, 2u, 15u, 16u, 17u, 40u}) {
          std::vector<ByteSpan> inputs;
          for (size_t i = 0; i < count; ++i) inputs.push_back(ByteSpan(data).subspan(i * (length + 1), length));
          if (count == 40) inputs[20] = inputs[20].first(length / 2);  // one among them is of another length
          std::vector<Score> scores(count);
          score->many(inputs, scores);
          for (size_t i = 0; i < count; ++i) EXPECT_EQ(scores[i], (*score)(inputs[i])) << length << " of " << count;
        }
      }
    }
  }
}

TEST(ScoreFunction, RefusesOtherLengthsAndUnknownAlgorithms) {
  for (size_t bytes : {0u, 16u, 19u, 21u, 31u, 33u, 64u}) {
    EXPECT_EQ(ScoreFunction::create(ScoreAlgorithm::sha256, bytes).status().code(), StatusCode::invalid_argument);
  }
  EXPECT_EQ(ScoreFunction::create(static_cast<ScoreAlgorithm>(0), 32).status().code(), StatusCode::unsupported);
  EXPECT_EQ(ScoreFunction::create(static_cast<ScoreAlgorithm>(77), 32).status().code(), StatusCode::unsupported);
}

TEST(ScoreFunction, PrefersBlake3WhereTheBuildHasIt) {
  const bool have_blake3 = ScoreFunction::create(ScoreAlgorithm::blake3, 32).ok();
#ifdef VARVE_TEST_WITHOUT_BLAKE3
  EXPECT_FALSE(have_blake3);
#endif
  const ScoreFunction preferred = ScoreFunction::preferred();
  EXPECT_EQ(preferred.algorithm(), have_blake3 ? ScoreAlgorithm::blake3 : ScoreAlgorithm::sha256);
  EXPECT_EQ(preferred.score_bytes(), 32u);
}

RC_GTEST_PROP(Score, PrefixOrderIsScoreOrder, (const std::string& a, const std::string& b)) {
  const ScoreFunction function = ScoreFunction::preferred();
  const Score left = function(as_bytes(a)), right = function(as_bytes(b));
  RC_ASSERT((left == right) == (a == b));
  if (left.prefix() != right.prefix()) RC_ASSERT((left < right) == (left.prefix() < right.prefix()));
}

TEST(Score, PrefixIsBigEndian) {
  Score score;
  for (size_t i = 0; i < 8; ++i) score.bytes[i] = static_cast<std::byte>(i + 1);
  EXPECT_EQ(score.prefix(), 0x0102030405060708u);
  EXPECT_EQ(score.hex(4), "01020304");
  EXPECT_EQ(score.hex(1000).size(), 64u);
}

/// The plain twin: one bit at a time, from the definition (reflected polynomial 0x1EDC6F41).
uint32_t crc32c_plain(ByteSpan data, uint32_t seed) {
  uint32_t state = ~seed;
  for (std::byte byte : data) {
    state ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) state = state >> 1 ^ (state & 1 ? 0x82f63b78u : 0u);
  }
  return ~state;
}

TEST(Crc32c, AgreesWithTheVectorsOfRfc3720) {
  EXPECT_EQ(crc32c(as_bytes("123456789")), 0xe3069283u);
  EXPECT_EQ(crc32c(ByteVector(32, std::byte{0})), 0x8a9136aau);
  EXPECT_EQ(crc32c(ByteVector(32, std::byte{0xff})), 0x62a8ab43u);
  ByteVector ascending = counting_bytes(32);
  EXPECT_EQ(crc32c(ascending), 0x46dd794eu);
  EXPECT_EQ(crc32c(ByteVector(ascending.rbegin(), ascending.rend())), 0x113fdb5cu);
  EXPECT_EQ(crc32c({}), 0u);
}

RC_GTEST_PROP(Crc32c, AgreesWithItsPlainTwinAndContinues, (const std::vector<uint8_t>& raw, uint32_t seed)) {
  const ByteSpan data = std::as_bytes(std::span(raw));
  RC_ASSERT(crc32c(data, seed) == crc32c_plain(data, seed));
  const size_t cut = raw.empty() ? 0 : seed % raw.size();
  RC_ASSERT(crc32c(data.subspan(cut), crc32c(data.first(cut), seed)) == crc32c(data, seed));
}

TEST(Crc32c, AgreesWithItsPlainTwinOnLongData) {
  const ByteVector data = counting_bytes(100'003);
  EXPECT_EQ(crc32c(ByteSpan(data).subspan(1)), crc32c_plain(ByteSpan(data).subspan(1), 0));
}

}  // namespace
}  // namespace varve
