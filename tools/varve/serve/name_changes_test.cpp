#include "service/server_link.h"

#include <gtest/gtest.h>

#include "serve/test_requests.h"

namespace varve {
namespace {

const UniqueId kFirst = id_of(1), kSecond = id_of(2), kThird = id_of(3);

class Changes : public testing::Test {
 protected:
  StatusCode sync(const std::string& folder, const UniqueId& run) {
    const uint64_t count = changes_.count();
    const Status checked = changes_.check_sync(folder, run);
    if (checked.ok()) changes_.forget_synced(folder, count);
    return checked.code();
  }
  NameChanges changes_;
};

TEST_F(Changes, AreMadeDurableInTheRunOfTheMachineInWhichTheyWereMade) {
  changes_.note("sets", kFirst);
  EXPECT_EQ(sync("sets", kFirst), StatusCode::ok);
  EXPECT_EQ(sync("sets", kSecond), StatusCode::ok) << "they were durable before";
}

TEST_F(Changes, AreToldOnceOfEachFolderIfTheyMayBeLost) {
  changes_.note("sets", kFirst);
  changes_.note("arenas", kFirst);
  const Status lost = changes_.check_sync("sets", kSecond);
  EXPECT_EQ(lost.code(), StatusCode::io_error);
  EXPECT_FALSE(lost.hint().empty());
  EXPECT_EQ(sync("sets", kSecond), StatusCode::ok);
  EXPECT_EQ(sync("index", kSecond), StatusCode::ok) << "nothing was changed there";
  EXPECT_EQ(sync("arenas", kSecond), StatusCode::io_error);
}

TEST_F(Changes, OfAnEarlierRunAreNotForgottenForThoseOfALaterOne) {
  changes_.note("sets", kFirst);
  changes_.note("sets", kSecond);
  EXPECT_EQ(sync("sets", kSecond), StatusCode::io_error);
  changes_.note("sets", kSecond);
  EXPECT_EQ(sync("sets", kSecond), StatusCode::ok);
}

TEST_F(Changes, DuringASyncAreNotMadeDurableByIt) {
  changes_.note("sets", kFirst);
  const uint64_t count = changes_.count();
  ASSERT_TRUE(changes_.check_sync("sets", kFirst).ok());
  changes_.note("sets", kFirst);
  changes_.forget_synced("sets", count);
  EXPECT_EQ(sync("sets", kSecond), StatusCode::io_error);
}

TEST_F(Changes, AreNotToBeReliedOnAsLongAsAnybodyHasSeenAnEarlierRun) {
  changes_.begin_watch(kFirst);
  changes_.begin_watch(kFirst);
  changes_.note("sets", kFirst);
  EXPECT_EQ(sync("sets", kFirst), StatusCode::ok);
  EXPECT_EQ(sync("sets", kSecond), StatusCode::io_error) << "what others did may be lost";
  changes_.begin_watch(kSecond);
  changes_.end_watch(kFirst);
  EXPECT_EQ(sync("sets", kSecond), StatusCode::io_error) << "there is another one who must hear of it";
  EXPECT_EQ(sync("arenas", kSecond), StatusCode::io_error);
  changes_.end_watch(kFirst);
  EXPECT_EQ(sync("sets", kSecond), StatusCode::ok);
  EXPECT_EQ(sync("sets", kThird), StatusCode::io_error);
}

TEST_F(Changes, OfWhoWatchesAreHisConcernAlone) {
  changes_.begin_watch(kFirst);
  changes_.note("sets", kFirst);
  changes_.end_watch(kFirst);
  EXPECT_EQ(sync("sets", kSecond), StatusCode::ok);
}

TEST_F(Changes, InMoreFoldersThanCanBeRememberedAreInAnyFolder) {
  for (int i = 0; i < 10'000; ++i) changes_.note("sets/job" + std::to_string(i), kFirst);
  EXPECT_EQ(sync("sets/job9999", kFirst), StatusCode::ok);
  EXPECT_EQ(sync("sets/job9999", kSecond), StatusCode::io_error);
  EXPECT_EQ(sync("sets/job9999", kSecond), StatusCode::io_error);
}

}  // namespace
}  // namespace varve
