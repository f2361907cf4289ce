#include "store/rebalance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace varve {
namespace {

std::vector<uint64_t> bytes_of_places(std::span<const Load> loads, std::span<const uint32_t> place_of,
                                      uint32_t places) {
  std::vector<uint64_t> bytes(places);
  for (size_t i = 0; i < loads.size(); ++i) bytes[place_of[i]] += loads[i].bytes;
  return bytes;
}

std::vector<uint64_t> balanced(const std::vector<Load>& loads, uint32_t places) {
  return bytes_of_places(loads, balanced_places(loads, places), places);
}

uint64_t moved_bytes(std::span<const Load> loads, std::span<const uint32_t> place_of) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < loads.size(); ++i) bytes += place_of[i] == loads[i].place ? 0 : loads[i].bytes;
  return bytes;
}

TEST(Balance, LeavesWhatIsEven) {
  const std::vector<Load> loads = {{10, 0}, {5, 1}, {5, 1}, {10, 2}};
  EXPECT_EQ(moved_bytes(loads, balanced_places(loads, 3)), 0u);
  EXPECT_TRUE(balanced_places({}, 3).empty());
}

TEST(Balance, FillsNewPlaces) {
  // Four saves to two servers, and a third one.
  std::vector<Load> loads;
  for (int save = 0; save < 4; ++save) {
    loads.push_back({10'200, 0});
    loads.push_back({9'100, 1});
  }
  EXPECT_EQ(balanced(loads, 3), (std::vector<uint64_t>{20'400, 27'300, 29'500}));
  EXPECT_EQ(balanced({{8, 0}, {8, 0}, {8, 0}, {8, 0}}, 4), (std::vector<uint64_t>{8, 8, 8, 8}));
}

TEST(Balance, DoesNotMoveALargeLoadForNothing) {
  EXPECT_EQ(balanced({{1000, 0}}, 3), (std::vector<uint64_t>{1000, 0, 0}));
  // The small ones go, not the large one.
  const std::vector<Load> loads = {{1000, 0}, {3, 0}, {2, 0}, {0, 0}};
  EXPECT_LE(moved_bytes(loads, balanced_places(loads, 2)), 5u);
  EXPECT_EQ(balanced(loads, 2), (std::vector<uint64_t>{1000, 5}));
  EXPECT_EQ(balanced(loads, 3), (std::vector<uint64_t>{1000, 2, 3}));
}

TEST(Balance, EndsWithinTheSmallestLoadOfEachPlaceAndHasNothingLeftToDo) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    const auto places = static_cast<uint32_t>(1 + random() % 9);
    std::vector<Load> loads(random() % 60);
    for (Load& load : loads) load = {uint64_t{1} << (random() % 20), static_cast<uint32_t>(random() % places)};
    for (Load& load : loads) load.bytes += random() % load.bytes;
    const std::vector<uint32_t> place_of = balanced_places(loads, places);
    const std::vector<uint64_t> bytes = bytes_of_places(loads, place_of, places);
    const uint64_t least = *std::min_element(bytes.begin(), bytes.end());
    for (size_t i = 0; i < loads.size(); ++i) EXPECT_LE(bytes[place_of[i]] - least, loads[i].bytes);
    for (size_t i = 0; i < loads.size(); ++i) loads[i].place = place_of[i];
    EXPECT_EQ(moved_bytes(loads, balanced_places(loads, places)), 0u);
  }
}

}  // namespace
}  // namespace varve
