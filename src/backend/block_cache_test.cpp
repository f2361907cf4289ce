#include "backend/block_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace varve {
namespace {

struct Blocks : testing::Test {
  /// Fetches a block of 100 bytes, and counts how often.
  std::function<Result<ByteVector>()> fetched() {
    return [this]() -> Result<ByteVector> {
      ++fetches;
      return ByteVector(100);
    };
  }
  std::atomic<int> fetches{0};
  BlockCache cache{300};
};

TEST_F(Blocks, AreFetchedOnceForAllWhoWantThem) {
  std::vector<std::jthread> readers;
  for (int i = 0; i < 8; ++i) {
    readers.emplace_back([&] {
      const auto slow = [&]() -> Result<ByteVector> {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        return fetched()();
      };
      EXPECT_TRUE(cache.get("key", "1", 0, slow).ok());
    });
  }
  readers.clear();
  EXPECT_EQ(fetches, 1);
}

TEST_F(Blocks, ThatCouldNotBeFetchedAreFetchedAgain) {
  const auto failing = []() -> Result<ByteVector> { return Status::io_error("no"); };
  EXPECT_FALSE(cache.get("key", "1", 0, failing).ok());
  EXPECT_TRUE(cache.get("key", "1", 0, fetched()).ok());
  EXPECT_EQ(fetches, 1);
}

TEST_F(Blocks, OfAnotherVersionAreOthers) {
  EXPECT_TRUE(cache.get("key", "1", 0, fetched()).ok());
  EXPECT_TRUE(cache.get("key", "2", 0, fetched()).ok());
  EXPECT_EQ(fetches, 2);
  EXPECT_TRUE(cache.has_some_of("key"));
  EXPECT_FALSE(cache.has_some_of("ke"));
}

TEST_F(Blocks, ThatWereNotUsedForLongestGoFirst) {
  for (const uint64_t number : {0, 1, 2}) EXPECT_TRUE(cache.get("key", "1", number, fetched()).ok());
  EXPECT_TRUE(cache.get("key", "1", 0, fetched()).ok());
  EXPECT_TRUE(cache.get("key", "1", 3, fetched()).ok());
  EXPECT_EQ(fetches, 4);
  EXPECT_TRUE(cache.get("key", "1", 0, fetched()).ok());
  EXPECT_EQ(fetches, 4);
  EXPECT_TRUE(cache.get("key", "1", 1, fetched()).ok());
  EXPECT_EQ(fetches, 5);
}

}  // namespace
}  // namespace varve
