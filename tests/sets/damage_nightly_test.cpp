// Every bit of a small store, and many of larger ones.

#include <gtest/gtest.h>

#include <random>

#include "sets/damage.h"

namespace varve {
namespace {

constexpr uint64_t kShareCount = 8;

/// A share of all bits, so that several processes can share the work.
struct EveryBit : testing::TestWithParam<uint64_t> {};

TEST_P(EveryBit, OfASmallStoreIsReportedWhenItFlips) {
  test::DamagedStore damaged(96_KiB);
  for (const std::string& path : damaged.vital_files()) {
    for (uint64_t bit = GetParam(); bit < 8 * damaged.original(path).size(); bit += kShareCount) {
      ASSERT_TRUE(damaged.flip_is_reported(path, bit));
    }
  }
}

TEST_P(EveryBit, OfASampleHurtsOnlyWhatVerifyNames) {
  test::DamagedStore damaged(24_KiB);
  std::mt19937_64 random(GetParam());
  for (const std::string& path : damaged.vital_files()) {
    for (int trial = 0; trial < 3'000; ++trial) {
      ASSERT_TRUE(damaged.flip_is_contained(path, random() % (8 * damaged.original(path).size())));
    }
  }
}

TEST_P(EveryBit, OfAThousandInALargerStoreIsReported) {
  test::DamagedStore larger(4_MiB);
  std::mt19937_64 random(GetParam());
  for (int trial = 0; trial < 1'000; ++trial) {
    const std::string& path = larger.vital_files()[random() % larger.vital_files().size()];
    ASSERT_TRUE(larger.flip_is_contained(path, random() % (8 * larger.original(path).size())));
  }
}

INSTANTIATE_TEST_SUITE_P(Shares, EveryBit, testing::Range<uint64_t>(0, kShareCount));

}  // namespace
}  // namespace varve
