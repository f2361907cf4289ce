#include "core/work_meter.h"

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

TEST(WorkMeter, CountsTheCallingThreadsWorkWhileItIsMetered) {
  WorkMeter meter;
  work();
  {
    const WorkMeter::Scope metered(&meter);
    work();
  }
  const double seconds = meter.processor_seconds();
  work();
  EXPECT_GE(seconds, kWorkSeconds);
  EXPECT_EQ(meter.processor_seconds(), seconds);
}

TEST(WorkMeter, CountsThePoolsAndHelpersThatAMeteredThreadStarts) {
  WorkMeter meter;
  {
    const WorkMeter::Scope metered(&meter);
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
  EXPECT_GE(meter.processor_seconds(), 4 * kWorkSeconds);
}

TEST(WorkMeter, DoesNotCountThreadsOfOthers) {
  WorkMeter meter;
  ThreadPool of_others(1);
  const WorkMeter::Scope metered(&meter);
  EXPECT_TRUE(of_others.submit(work).wait().ok());
  EXPECT_EQ(meter.processor_seconds(), 0);
}

TEST(WorkMeter, TellsWhatKindOfWorkTookTheTime) {
  WorkMeter meter;
  const auto in_pool = [] {
    const WorkMeter::Timer timer(WorkKind::encode, 1000);
    work();
  };
  {
    const WorkMeter::Scope metered(&meter);
    ThreadPool pool(1);
    EXPECT_TRUE(pool.submit(in_pool).wait().ok());
    const WorkMeter::Timer timer(WorkKind::score, 10);
    work();
  }
  in_pool();  // nobody's
  EXPECT_EQ(meter.spent(WorkKind::encode).bytes, 1000u);
  EXPECT_EQ(meter.spent(WorkKind::score).bytes, 10u);
  EXPECT_EQ(meter.spent(WorkKind::write).bytes, 0u);
  const WorkTimes times = meter.times();
  EXPECT_GE(times.encode, kWorkSeconds);
  EXPECT_GE(times.score, kWorkSeconds);
  EXPECT_GE(meter.processor_seconds(), times.encode + times.score) << "kinds are parts of the whole";
  EXPECT_EQ(times.write + times.sync + times.read, 0);
  EXPECT_GE(times.starved, 0);
}

TEST(WorkMeter, CountsForWhatWaitsTheTimeThatPassed) {
  WorkMeter meter;
  {
    const WorkMeter::Scope metered(&meter);
    const WorkMeter::Timer timer(WorkKind::write, 1);
    std::this_thread::sleep_for(std::chrono::duration<double>(kWorkSeconds));
  }
  EXPECT_GE(meter.times().write, kWorkSeconds);
}

}  // namespace
}  // namespace varve
