#include "core/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>

#include "core/progress.h"

namespace varve {
namespace {

TEST(ThreadPool, RunsEveryTaskAndHandsOutItsOutcome) {
  ThreadPool pool(4);
  EXPECT_EQ(pool.thread_count(), 4u);
  std::vector<Task<Result<int>>> tasks;
  for (int i = 0; i < 1000; ++i) tasks.push_back(pool.submit([i] { return i * i; }));
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(*tasks[static_cast<size_t>(i)].wait(), i * i);
}

TEST(ThreadPool, TakesTasksThatReturnNothingAStatusOrAResult) {
  ThreadPool pool(2);
  EXPECT_TRUE(pool.submit([] {}).wait().ok());
  EXPECT_EQ(pool.submit([] { return Status::busy("later"); }).wait().code(), StatusCode::busy);
  EXPECT_EQ(*pool.submit([] { return Result<std::string>("text"); }).wait(), "text");
  EXPECT_EQ(pool.submit([]() -> Result<int> { return Status::cancelled(); }).wait().status().code(),
            StatusCode::cancelled);
}

TEST(ThreadPool, TurnsExceptionsIntoStatus) {
  ThreadPool pool(1);
  const Status failed = pool.submit([] { throw std::runtime_error("oh no"); }).wait();
  EXPECT_EQ(failed.code(), StatusCode::internal);
  EXPECT_EQ(failed.subject(), "oh no");
  EXPECT_EQ(pool.submit([]() -> int { throw std::bad_alloc(); }).wait().status().code(), StatusCode::resource_limit);
  EXPECT_EQ(pool.submit([]() -> Status { throw 7; }).wait().code(), StatusCode::internal);
  EXPECT_EQ(*pool.submit([] { return 1; }).wait(), 1);
}

TEST(ThreadPool, TakesCallablesThatCannotBeCopied) {
  ThreadPool pool(1);
  auto owned = std::make_unique<int>(5);
  EXPECT_EQ(**pool.submit([owned = std::move(owned)]() mutable { return std::move(owned); }).wait(), 5);
}

TEST(ThreadPool, LetsGoOfWhatACallableOwnsBeforeItsOutcomeIsKnown) {
  ThreadPool pool(1);
  auto shared = std::make_shared<int>(0);
  EXPECT_TRUE(pool.submit([shared] { *shared = 1; }).wait().ok());
  EXPECT_EQ(shared.use_count(), 1);
}

TEST(ThreadPool, FinishesWhatWasSubmittedBeforeItEnds) {
  std::atomic<int> done{0};
  {
    ThreadPool pool(3);
    for (int i = 0; i < 100; ++i) pool.submit([&done] { ++done; });
  }
  EXPECT_EQ(done, 100);
}

TEST(ThreadPool, TakesTasksFromSeveralThreadsAndFromItsOwn) {
  ThreadPool pool;
  EXPECT_GE(pool.thread_count(), 1u);
  std::atomic<int> done{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) EXPECT_TRUE(pool.submit([&] { pool.submit([&done] { ++done; }); }).wait().ok());
    });
  }
  for (auto& thread : threads) thread.join();
  while (done < 200) std::this_thread::yield();
}

TEST(NullProgress, NeverCancels) {
  ProgressSink& progress = null_progress();
  progress.phase("testing");
  progress.total(10);
  progress.advance(10);
  progress.warning(Status::busy("nothing"));
  EXPECT_FALSE(progress.cancelled());
}

}  // namespace
}  // namespace varve
