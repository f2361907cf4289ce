#include "chunk/chunker.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <random>
#include <set>
#include <string>

namespace varve {
namespace {

ByteVector random_bytes(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  ByteVector bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

std::unique_ptr<Chunker> chunker_of(const std::string& name) {
  auto options = parse_chunker(name);
  EXPECT_TRUE(options.ok()) << options.status().to_string();
  auto chunker = make_chunker(*options);
  EXPECT_TRUE(chunker.ok()) << chunker.status().to_string();
  return std::move(chunker).value();
}

/// The chunk lengths of `data`, of which the chunker sees at most `window` bytes at a time.
std::vector<size_t> lengths_of(const Chunker& chunker, ByteSpan data, size_t window = SIZE_MAX) {
  std::vector<size_t> lengths;
  while (!data.empty()) {
    size_t length = chunker.next(data.first(std::min(data.size(), window)), data.size());
    if (length == 0 || length > data.size()) return {};
    lengths.push_back(length);
    data = data.subspan(length);
  }
  return lengths;
}

/// Random bytes with runs of one value in between, as real arrays have.
rc::Gen<ByteVector> some_data() {
  return rc::gen::exec([] {
    ByteVector data;
    for (int piece = *rc::gen::inRange(0, 5); piece > 0; --piece) {
      const auto count = static_cast<size_t>(*rc::gen::inRange(0, 20'000));
      const auto seed = *rc::gen::arbitrary<uint64_t>();
      ByteVector part =
          seed % 3 == 0 ? ByteVector(count, static_cast<std::byte>(seed >> 8)) : random_bytes(count, seed);
      data.insert(data.end(), part.begin(), part.end());
    }
    return data;
  });
}

class EveryChunker : public testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Chunker> chunker_ = chunker_of(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Kinds, EveryChunker,
                         testing::Values("fixed:64", "fixed:8192", "fixed:1000", "fixed:77777", "gear:64", "gear:1024",
                                         "gear:8192", "gear:64,4096,5000", "gear:256,256,256", "rabin:64", "rabin:1024",
                                         "rabin:8192", "rabin:64,4096,5000", "rabin:256,256,256"),
                         [](const auto& parameter) {
                           std::string name = parameter.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return c == ':' || c == ','; }, '_');
                           return name;
                         });

TEST_P(EveryChunker, CoversEveryByteOnceAndAlwaysInTheSameWay) {
  EXPECT_TRUE(rc::check("covers and repeats", [this] {
    const ByteVector data = *some_data();
    const auto lengths = lengths_of(*chunker_, data);
    size_t sum = 0;
    for (size_t length : lengths) sum += length;
    RC_ASSERT(sum == data.size());
    RC_ASSERT(lengths == lengths_of(*chunker_, data));
  }));
}

TEST_P(EveryChunker, CutsTheSameThroughTheWindowThatItAsksFor) {
  const ByteVector zeros(100'000);
  EXPECT_EQ(lengths_of(*chunker_, zeros), lengths_of(*chunker_, zeros, chunker_->bytes_ahead()));
  EXPECT_TRUE(rc::check("window", [this] {
    const ByteVector data = *some_data();
    const size_t window = chunker_->bytes_ahead() + static_cast<size_t>(*rc::gen::inRange(0, 100));
    RC_ASSERT(lengths_of(*chunker_, data) == lengths_of(*chunker_, data, window));
  }));
}

TEST_P(EveryChunker, KeepsItsBounds) {
  const ChunkerOptions options = *parse_chunker(GetParam());
  const bool fixed = options.kind == ChunkerKind::fixed;
  const size_t average = options.bytes_average;
  const size_t min = fixed               ? average
                     : options.bytes_min ? options.bytes_min
                                         : std::max<size_t>(average / 4, kChunkBytesMin);
  const size_t max = fixed ? average : options.bytes_max ? options.bytes_max : 8 * average;
  EXPECT_TRUE(rc::check("bounds", [&, this] {
    const ByteVector data = *some_data();
    auto lengths = lengths_of(*chunker_, data);
    if (lengths.empty()) return;
    const size_t last = lengths.back();
    lengths.pop_back();
    for (size_t length : lengths) RC_ASSERT(length >= min && length <= max);
    RC_ASSERT(last <= (fixed ? average + average / 2 : max));
    if (fixed && !lengths.empty()) RC_ASSERT(2 * last >= average);
  }));
}

class ContentDefinedChunker : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Kinds, ContentDefinedChunker, testing::Values("gear", "rabin"));

TEST_P(ContentDefinedChunker, MakesChunksOfAboutTheAverage) {
  for (const char* sizes : {"1024", "8192", "64,8192,65536", "4096,8192,65536", "65536"}) {
    const auto chunker = chunker_of(fmt::format("{}:{}", GetParam(), sizes));
    const double average = parse_chunker(fmt::format("{}:{}", GetParam(), sizes))->bytes_average;
    const ByteVector data = random_bytes(16 << 20, 1);
    const double mean = static_cast<double>(data.size()) / static_cast<double>(lengths_of(*chunker, data).size());
    EXPECT_NEAR(mean / average, 1.0, 0.12) << sizes;
  }
}

TEST_P(ContentDefinedChunker, FindsItsCutsAgainAfterAnInsertion) {
  const auto chunker = chunker_of(fmt::format("{}:1024", GetParam()));
  const auto ends_from_the_back = [&](const ByteVector& data) {
    std::set<size_t> ends;
    size_t left = data.size();
    for (size_t length : lengths_of(*chunker, data)) ends.insert(left -= length);
    return ends;
  };
  EXPECT_TRUE(rc::check("shift", [&] {
    const ByteVector data = random_bytes(200'000, *rc::gen::arbitrary<uint64_t>());
    ByteVector shifted = random_bytes(static_cast<size_t>(*rc::gen::inRange(1, 3000)), *rc::gen::arbitrary<uint64_t>());
    shifted.insert(shifted.end(), data.begin(), data.end());
    const auto before = ends_from_the_back(data), after = ends_from_the_back(shifted);
    size_t found = 0;
    for (size_t end : before) found += after.count(end);
    RC_ASSERT(found * 10 >= before.size() * 8);
  }));
}

TEST_P(ContentDefinedChunker, MakesLargestChunksOfARunOfZeros) {
  const auto chunker = chunker_of(fmt::format("{}:8192", GetParam()));
  EXPECT_EQ(chunker->next(ByteVector(100'000), 100'000), 65536u);
}

/// Whoever changes where chunks are cut makes old stores find nothing of new data: then let it be on purpose.
TEST_P(ContentDefinedChunker, CutsWhereItAlwaysDid) {
  const auto lengths = lengths_of(*chunker_of(fmt::format("{}:8192", GetParam())), random_bytes(50'000, 42));
  const std::vector<size_t> gear = {8887, 7687, 11593, 7426, 7692, 6715};
  const std::vector<size_t> rabin = {5183, 2556, 5337, 6613, 9192, 2823, 3083, 10322, 2907, 1984};
  EXPECT_EQ(lengths, std::string(GetParam()) == "gear" ? gear : rabin);
}

RC_GTEST_PROP(GearKernel, AgreesWithItsPlainTwin, (uint64_t seed)) {
  const ByteVector data = random_bytes(64 + seed % 5000, seed);
  const size_t from = 64 + static_cast<size_t>(*rc::gen::inRange<uint64_t>(0, data.size() - 63));
  for (int bits : {1, 6, 9, 11, 13, 64}) {
    const uint64_t mask = ~uint64_t{0} << (64 - bits);
    RC_ASSERT(find_gear_cut(data, from, mask) == find_gear_cut_plain(data, from, mask));
  }
  RC_ASSERT(find_gear_cut(data, from, 0) == from);
}

TEST(FixedChunker, JoinsAShortRemainderToTheLastChunk) {
  const auto chunker = chunker_of("fixed:8192");
  EXPECT_EQ(lengths_of(*chunker, ByteVector(10'000)), (std::vector<size_t>{10'000}));
  EXPECT_EQ(lengths_of(*chunker, ByteVector(12'287)), (std::vector<size_t>{12'287}));
  EXPECT_EQ(lengths_of(*chunker, ByteVector(12'288)), (std::vector<size_t>{8192, 4096}));
  EXPECT_EQ(lengths_of(*chunker, ByteVector(16'384)), (std::vector<size_t>{8192, 8192}));
  EXPECT_EQ(lengths_of(*chunker, ByteVector(100)), (std::vector<size_t>{100}));
}

TEST(FixedChunker, NeverExceedsTheLargestChunk) {
  const auto chunker = chunker_of(fmt::format("fixed:{}", kChunkBytesMax));
  EXPECT_EQ(lengths_of(*chunker, ByteVector(kChunkBytesMax + 5)), (std::vector<size_t>{kChunkBytesMax, 5}));
}

/// The product of two polynomials over GF(2) modulo kRabinPolynomial.
uint64_t multiply(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  for (; b != 0; b >>= 1) {
    if (b & 1) product ^= a;
    a <<= 1;
    if (a >> 53) a ^= kRabinPolynomial;
  }
  return product;
}

TEST(RabinPolynomial, IsIrreducible) {
  // Of prime degree p it is, by Rabin's test, if x^(2^p) = x and it has no factor of degree 1 (x or x + 1).
  uint64_t power = 2;
  for (int i = 0; i < 53; ++i) power = multiply(power, power);
  EXPECT_EQ(power, 2u);
  EXPECT_EQ(kRabinPolynomial & 1, 1u);
  EXPECT_EQ(std::popcount(kRabinPolynomial) % 2, 1);
}

TEST(ChunkerName, ParsesBack) {
  for (const char* name : {"fixed:8192", "fixed:65536", "fixed:1000", "gear:8192", "rabin:65536",
                           "rabin:2048,8192,65536", "gear:64,64,64", "gear:64,128,1048576"}) {
    auto options = parse_chunker(name);
    ASSERT_TRUE(options.ok()) << options.status().to_string();
    EXPECT_EQ(chunker_name(*options), name);
  }
  EXPECT_EQ(chunker_name(*parse_chunker("fixed")), "fixed:8192");
  EXPECT_EQ(chunker_name(*parse_chunker("gear")), "gear:8192");
  EXPECT_EQ(chunker_name({}), "fixed:8192");
}

TEST(ParseChunker, RefusesWhatMakesNoSense) {
  for (const char* name : {"",
                           ":",
                           "Fixed",
                           "fixed:",
                           "fixed:0",
                           "fixed:63",
                           "fixed:1048577",
                           "fixed:8192x",
                           "fixed:-5",
                           "fixed: 8192",
                           "fixed:64,128,256",
                           "gear:8191",
                           "gear:8192,",
                           "gear:1,2",
                           "gear:1,2,3,4",
                           "gear:64,128,64",
                           "gear:256,128,512",
                           "gear:32,128,512",
                           "gear:64,128,2097152",
                           "rabin:99999999999",
                           "sha:8192",
                           "gear:0,8192,0"}) {
    EXPECT_EQ(parse_chunker(name).status().code(), StatusCode::invalid_argument) << name;
  }
}

TEST(MakeChunker, RefusesSizesOutOfOrder) {
  EXPECT_FALSE(make_chunker({.kind = ChunkerKind::gear, .bytes_average = 8192, .bytes_min = 16384}).ok());
  EXPECT_FALSE(make_chunker({.kind = ChunkerKind::rabin, .bytes_average = 8192, .bytes_max = 4096}).ok());
  EXPECT_FALSE(make_chunker({.kind = ChunkerKind::fixed, .bytes_average = 0}).ok());
  EXPECT_FALSE(make_chunker({.kind = ChunkerKind::fixed, .bytes_average = UINT32_MAX}).ok());
  EXPECT_FALSE(make_chunker({.kind = static_cast<ChunkerKind>(9), .bytes_average = 8192}).ok());
}

}  // namespace
}  // namespace varve
