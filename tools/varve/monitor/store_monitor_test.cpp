#include "monitor/store_monitor.h"

#include <gtest/gtest.h>

#include "monitor/metrics_text.h"
#include "sets/folders.h"
#include "store/prune.h"
#include "store/test_sets.h"

namespace varve {
namespace {

class StoreInMonitoring : public testing::Test {
 protected:
  StoreInMonitoring() {
    EXPECT_TRUE(Store::create(posix_file_system(), folder_ / "store").ok());
    store_ = Store::open(posix_file_system(), folder_ / "store").value();
  }
  void save(uint64_t step, const std::vector<uint64_t>& numbers) {
    ASSERT_TRUE(test::save_numbers(*store_, {"heat", step}, numbers).ok());
  }
  uint64_t garbage() const { return garbage_bytes(*store_, null_progress()).value(); }

  const test::TempFolder folder_;
  std::unique_ptr<Store> store_;
};

TEST_F(StoreInMonitoring, ShowsTheNewestSetOfEachJobAndItsSpace) {
  save(1, test::numbers_between(1, 16));
  save(7, test::numbers_between(17, 32));
  const StoreFacts facts = look_at_store(*store_).value();
  ASSERT_EQ(facts.jobs.size(), 1u);
  EXPECT_EQ(facts.jobs.at("heat").set_count, 2u);
  EXPECT_EQ(facts.jobs.at("heat").newest.step, 7u);
  EXPECT_GE(facts.arena_bytes, 32 * test::kNumberedChunkBytes);
  EXPECT_GT(facts.free_bytes.value_or(0), 0u);
}

TEST_F(StoreInMonitoring, HasForGarbageWhatNoSetNeeds) {
  save(1, test::numbers_between(1, 16));
  save(2, test::numbers_between(9, 24));
  EXPECT_EQ(garbage(), 0u);
  // The second set refers to half of what was written for the first.
  ASSERT_TRUE(Catalog(*store_).remove({"heat", 1}).ok());
  const uint64_t left = garbage();
  EXPECT_GE(left, 8 * test::kNumberedChunkBytes);
  EXPECT_LT(left, 10 * test::kNumberedChunkBytes);
  ASSERT_TRUE(Catalog(*store_).remove({"heat", 2}).ok());
  EXPECT_GE(garbage(), 24 * test::kNumberedChunkBytes);
  PruneOptions options;
  options.wait_seconds = 0;
  ASSERT_TRUE(prune_store(*store_, options).ok());
  EXPECT_EQ(garbage(), 0u);
}

TEST_F(StoreInMonitoring, IsLookedAtWithoutWhoAsksWaiting) {
  save(3, test::numbers_between(1, 8));
  const std::unique_ptr<StoreMonitor> monitor = StoreMonitor::start(*store_).value();
  std::string told;
  for (int tries = 0; tries < 1000 && told.find("varve_store_garbage_bytes") == std::string::npos; ++tries) {
    Metrics metrics = Metrics::with({{"store", "x"}});
    monitor->tell(metrics);
    told = metrics.text(MetricsFormat::prometheus);
    sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_NE(told.find("varve_store_newest_step{store=\"x\",job=\"heat\"} 3\n"), std::string::npos) << told;
  EXPECT_NE(told.find("varve_store_garbage_bytes{store=\"x\"} 0\n"), std::string::npos);
}

TEST_F(StoreInMonitoring, TooLargeForTheMemoryTellsNoGarbage) {
  save(3, test::numbers_between(1, 200));
  const std::unique_ptr<StoreMonitor> monitor = StoreMonitor::start(*store_, {.garbage_memory_bytes = 100}).value();
  std::string told;
  for (int tries = 0; tries < 1000 && told.empty(); ++tries) {
    Metrics metrics;
    monitor->tell(metrics);
    told = metrics.text(MetricsFormat::prometheus);
    sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_NE(told.find("varve_store_arena_bytes"), std::string::npos);
  EXPECT_EQ(told.find("varve_store_garbage_bytes"), std::string::npos);
}

class StoppedAtOnce final : public ProgressSink {
 public:
  void total(uint64_t) override {}
  void advance(uint64_t) override {}
  void phase(std::string_view) override {}
  void warning(const Status&) override {}
  bool cancelled() const override { return true; }
};

TEST_F(StoreInMonitoring, IsNotGoneThroughToTheEndByWhoIsStopped) {
  save(3, test::numbers_between(1, 8));
  StoppedAtOnce progress;
  EXPECT_EQ(garbage_bytes(*store_, progress).status().code(), StatusCode::cancelled);
}

}  // namespace
}  // namespace varve
