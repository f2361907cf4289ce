#include "core/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <vector>

namespace varve {
namespace {

TEST(ParallelFor, CallsEachIndexOnce) {
  std::vector<std::atomic<int>> calls(1000);
  EXPECT_TRUE(parallel_for(calls.size(), 4, [&](size_t i) {
                ++calls[i];
                return Status();
              }).ok());
  for (const std::atomic<int>& count : calls) EXPECT_EQ(count, 1);
}

TEST(ParallelFor, ReturnsAFailureAndBeginsNothingAfterIt) {
  std::atomic<size_t> begun{0};
  const Status status = parallel_for(1'000'000, 2, [&](size_t i) {
    ++begun;
    return i == 3 ? Status::io_error("broken") : Status();
  });
  EXPECT_EQ(status.code(), StatusCode::io_error);
  EXPECT_LT(begun, 1'000'000u);
}

TEST(ParallelFor, TurnsRunningOutOfMemoryIntoAStatus) {
  EXPECT_EQ(parallel_for(1, 1, [](size_t) -> Status { throw std::bad_alloc(); }).code(), StatusCode::resource_limit);
}

TEST(ParallelFor, DoesNothingForNoIndices) {
  EXPECT_TRUE(parallel_for(0, 8, [](size_t) { return Status::io_error("called"); }).ok());
}

}  // namespace
}  // namespace varve
