#include "mount/pack_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace varve {
namespace {

using Cache = SharedCache<int, std::string>;

Cache::Make making(const std::string& text, uint64_t bytes) {
  return [=] { return Cache::Made{std::make_shared<std::string>(text), bytes}; };
}

TEST(SharedCache, MakesOnceHoweverManyWantIt) {
  Cache cache(100);
  std::atomic<int> made{0};
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const auto got = cache.get(7, [&] {
        ++made;
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        return Cache::Made{std::make_shared<std::string>("seven"), 5};
      });
      if (got.ok() && **got == "seven") ++right;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(made, 1);
  EXPECT_EQ(right, 8);
}

TEST(SharedCache, KeepsWhatWasUsedLast) {
  Cache cache(100);
  for (int key : {1, 2, 3}) ASSERT_TRUE(cache.get(key, making("old", 40)).ok());
  EXPECT_FALSE(cache.has(1));
  EXPECT_EQ(cache.bytes(), 80u);
  ASSERT_TRUE(cache.get(2, making("not needed", 40)).ok());
  ASSERT_TRUE(cache.get(4, making("new", 40)).ok());
  EXPECT_TRUE(cache.has(2));
  EXPECT_FALSE(cache.has(3));
}

TEST(SharedCache, HoldsOneThatIsLargerThanItself) {
  Cache cache(100);
  const auto large = cache.get(1, making("large", 1000));
  ASSERT_TRUE(large.ok());
  EXPECT_TRUE(cache.has(1));
  ASSERT_TRUE(cache.get(2, making("small", 1)).ok());
  EXPECT_FALSE(cache.has(1));
  EXPECT_EQ(**large, "large") << "who holds it has it still";
}

TEST(SharedCache, TellsAFailureAndTriesAgain) {
  Cache cache(100);
  EXPECT_EQ(cache.get(1, []() -> Result<Cache::Made> { return Status::corrupt("bad"); }).status().code(),
            StatusCode::corrupt);
  EXPECT_EQ(cache.get(1, []() -> Result<Cache::Made> { throw std::bad_alloc(); }).status().code(),
            StatusCode::resource_limit);
  EXPECT_TRUE(cache.get(1, making("good", 4)).ok());
}

TEST(SharedCache, ForgetsOnlyTheOneThatIsMeant) {
  Cache cache(100);
  const auto first = cache.get(1, making("first", 4));
  cache.forget(1, *first);
  EXPECT_FALSE(cache.has(1));
  ASSERT_TRUE(cache.get(1, making("second", 4)).ok());
  cache.forget(1, *first);
  EXPECT_TRUE(cache.has(1));
}

}  // namespace
}  // namespace varve
