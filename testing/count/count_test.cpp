#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "count/counted_run.h"

namespace varve::count {
namespace {

CountedRun play(uint32_t ranks) {
  const std::string memory = fmt::format("/dev/shm/varve_count_test.{}", ::getpid());
  std::filesystem::create_directories(memory);
  Result<CountedRun> counted = count_run({.ranks = ranks, .checkpoints = 1}, memory);
  std::error_code ignored;
  std::filesystem::remove_all(memory, ignored);
  EXPECT_TRUE(counted.ok()) << counted.status().to_string();
  return counted.ok() ? std::move(*counted) : CountedRun();
}

TEST(CountedRun, AsksTheStoreForAsMuchAGroupHoweverManyThereAre) {
  const CountedRun few = play(8), many = play(64);
  for (const char* name : {"open", "restart", "restart by half as many", "restart by twice as many"}) {
    SCOPED_TRACE(name);
    const CountedPhase of_few = few.sum_of(name), of_many = many.sum_of(name);
    ASSERT_GT(of_few.ranks, 0u);
    ASSERT_GT(of_many.ranks, of_few.ranks);
    const auto share = [](const CountedPhase& phase, uint64_t count) {
      return static_cast<double>(count) / phase.ranks;
    };
    EXPECT_LE(share(of_many, of_many.operations.names()), share(of_few, of_few.operations.names()) + 0.5);
    EXPECT_LE(share(of_many, of_many.operations.data()), share(of_few, of_few.operations.data()) * 1.1);
    EXPECT_LE(share(of_many, of_many.operations.bytes_read), share(of_few, of_few.operations.bytes_read) * 1.2);
    // Of each other group a rank is told what nobody could guess: where its root is, and little else.
    const uint64_t groups = many.run.ranks - few.run.ranks;
    const auto told = [](const CountedPhase& phase) {
      return phase.messages.collective_bytes + phase.messages.message_bytes;
    };
    EXPECT_LE(share(of_many, told(of_many)) - share(of_few, told(of_few)), static_cast<double>(groups) * 150);
  }
}

}  // namespace
}  // namespace varve::count
