#include "core/clock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <ctime>
#include <thread>

#include "core/thread_pool.h"

namespace varve {
namespace {

constexpr double kWorkSeconds = 0.02;

/// Uses the processor for so long, however long that takes.
void work() {
  auto used = [] {
    timespec time = {};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  };
  const double end = used() + kWorkSeconds;
  while (used() < end) {
  }
}

TEST(ProcessorMeter, CountsTheCallingThreadsWorkWhileItIsMetered) {
  ProcessorMeter meter;
  work();
  {
    const ProcessorMeter::Scope metered(&meter);
    work();
  }
  const double seconds = meter.seconds();
  work();
  EXPECT_GE(seconds, kWorkSeconds);
  EXPECT_EQ(meter.seconds(), seconds);
}

TEST(ProcessorMeter, CountsThePoolsAndHelpersThatAMeteredThreadStarts) {
  ProcessorMeter meter;
  {
    const ProcessorMeter::Scope metered(&meter);
    {
      ThreadPool pool(2);
      auto first = pool.submit(work), second = pool.submit(work);
      EXPECT_TRUE(first.wait().ok());
      EXPECT_TRUE(second.wait().ok());
    }
    auto body = [](size_t) {
      work();
      return Status();
    };
    EXPECT_TRUE(parallel_for(2, 2, body).ok());
  }
  EXPECT_GE(meter.seconds(), 4 * kWorkSeconds);
}

TEST(ProcessorMeter, DoesNotCountThreadsOfOthers) {
  ProcessorMeter meter;
  ThreadPool of_others(1);
  const ProcessorMeter::Scope metered(&meter);
  EXPECT_TRUE(of_others.submit(work).wait().ok());
  EXPECT_EQ(meter.seconds(), 0);
}

}  // namespace
}  // namespace varve
