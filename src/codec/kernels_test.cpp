#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "codec/kernels.h"
#include "codec/test_packs.h"

namespace varve::kernels {
namespace {

using test::Random;

std::vector<DifferenceRun> random_difference_runs(Random& random) {
  std::vector<DifferenceRun> runs;
  for (uint64_t left = random() % 4; left > 0; --left) {
    DifferenceRun run{.elements = random() % (random() % 8 == 0 ? 40'000 : 5000)};
    run.stride_count = 1 + random() % kDifferencesMax;
    for (size_t i = 0; i < run.stride_count; ++i) run.strides[i] = 1 + random() % (random() % 2 == 0 ? 10 : 6000);
    if (random() % 2 == 0) run.strides[0] = 1;
    runs.push_back(run);
  }
  return runs;
}

TEST(NumberKernels, AgreeWithTheirPlainTwinsAndInvertEachOther) {
  Random random(1);
  for (uint32_t bytes : {1u, 2u, 4u, 8u}) {
    for (bool big_endian : {false, true}) {
      for (const auto& [floating, sign_last] :
           {std::pair(false, false), std::pair(true, false), std::pair(true, true)}) {
        if (bytes == 1 && (big_endian || floating)) continue;
        const NumberFormat format{bytes, big_endian, floating, sign_last};
        for (int repeat = 0; repeat < 30; ++repeat) {
          const std::vector<DifferenceRun> runs = random_difference_runs(random);
          uint64_t elements = 0;
          for (const DifferenceRun& run : runs) elements += run.elements;
          const ByteVector in = test::random_bytes(elements * bytes + 1, random);
          const ByteSpan odd = ByteSpan(in).subspan(1);  // not aligned
          ByteVector fast(odd.size()), plain(odd.size()), back(odd.size()), plain_back(odd.size());
          difference_forward(format, runs, odd, fast);
          difference_forward_plain(format, runs, odd, plain);
          ASSERT_EQ(fast, plain) << bytes << big_endian << floating << sign_last;
          difference_inverse(format, runs, fast, back);
          difference_inverse_plain(format, runs, fast, plain_back);
          ASSERT_EQ(back, plain_back);
          ASSERT_TRUE(std::equal(odd.begin(), odd.end(), back.begin()));
          const size_t begin = random() % (elements + 1), count = random() % (elements - begin + 1);
          ByteVector piece(count * bytes);
          difference_forward_piece(format, runs, odd, begin * bytes, piece);
          ASSERT_TRUE(std::equal(piece.begin(), piece.end(), plain.begin() + static_cast<ptrdiff_t>(begin * bytes)));
        }
      }
    }
  }
}

TEST(NumberKernels, CountMatchesOfBytes) {
  Random random(5);
  constexpr size_t kPeriods = 128;
  ByteVector bytes(3000);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() % 4);
  std::vector<size_t> positions;
  for (size_t at = 4 * kPeriods; at < bytes.size(); at += 1 + random() % 9) positions.push_back(at);
  std::vector<uint32_t> matches(kPeriods, 7), expected(kPeriods, 7);
  for (const size_t at : positions) {
    for (size_t i = 0; i < kPeriods; ++i) expected[i] += bytes[at] == bytes[at - 4 * (kPeriods - i)] ? 1 : 0;
  }
  count_matches(bytes, positions, matches);
  EXPECT_EQ(matches, expected);
}

TEST(NumberKernels, CountWhatIsNear) {
  std::vector<float> values;
  for (int i = -1000; i <= 1000; ++i) values.push_back(static_cast<float>(i) / 100);
  values.insert(values.end(), {0.0F, std::numeric_limits<float>::infinity(), std::nanf("")});
  for (const float value : {0.0F, 4.0F, -8.0F, std::numeric_limits<float>::infinity()}) {
    std::vector<uint32_t> counts(values.size(), 3), expected(values.size(), 3);
    for (size_t i = 0; i < values.size(); ++i) {
      for (const float share : {2.0F, 8.0F, 32.0F})
        expected[i] += std::abs(value - values[i]) < std::abs(value) / share;
    }
    count_near(value, values, counts);
    EXPECT_EQ(counts, expected) << value;
  }
}

TEST(ShuffleKernels, AgreeWithTheirPlainTwinsAndInvertEachOther) {
  Random random(2);
  for (size_t element_bytes : {1, 2, 3, 4, 7, 8, 12, 16, 32, 88, 1000}) {
    for (int repeat = 0; repeat < 20; ++repeat) {
      const ByteVector in = test::random_bytes(random() % 20000 + 1, random);
      const ByteSpan odd = ByteSpan(in).subspan(1);
      ByteVector fast(odd.size()), plain(odd.size()), back(odd.size());
      shuffle(element_bytes, odd, fast);
      shuffle_plain(element_bytes, odd, plain);
      ASSERT_EQ(fast, plain) << element_bytes;
      unshuffle(element_bytes, fast, back);
      unshuffle_plain(element_bytes, fast, plain);
      ASSERT_EQ(back, plain) << element_bytes;
      ASSERT_TRUE(std::equal(odd.begin(), odd.end(), back.begin()));

      bit_shuffle(element_bytes, odd, fast);
      bit_shuffle_plain(element_bytes, odd, plain);
      ASSERT_EQ(fast, plain) << element_bytes;
      bit_unshuffle(element_bytes, fast, back);
      bit_unshuffle_plain(element_bytes, fast, plain);
      ASSERT_EQ(back, plain) << element_bytes;
      ASSERT_TRUE(std::equal(odd.begin(), odd.end(), back.begin()));
    }
  }
}

}  // namespace
}  // namespace varve::kernels
