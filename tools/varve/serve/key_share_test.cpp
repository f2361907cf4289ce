#include "serve/key_share.h"

#include <gtest/gtest.h>

#include <optional>

#include "serve/served_folder.h"
#include "serve/test_requests.h"

namespace varve {
namespace {

TEST(KeyShare, IsWhatLeavesAQuarterToAnyOtherKey) {
  EXPECT_EQ(share_of_key(256, 1), 192u);
  EXPECT_EQ(share_of_key(256, 2), 192u);
  EXPECT_EQ(share_of_key(256, 3), 96u);
  EXPECT_EQ(share_of_key(2, 1), 1u);
  EXPECT_EQ(share_of_key(1, 3), 1u);
  EXPECT_EQ(share_of_key(0, 1), 1u);
}

TEST(KeyShare, GivesTurnsInTheOrderInWhichTheyAreAskedFor) {
  KeyShare share(Rights::read, {.turns = 1});
  std::string told;
  KeyShare::Turn first(share, [&] { told += "1"; }), second(share, [&] { told += "2"; });
  KeyShare::Turn third(share, [&] { told += "3"; });
  EXPECT_TRUE(first.take());
  EXPECT_FALSE(second.take());
  EXPECT_FALSE(third.take());
  EXPECT_FALSE(second.take());
  EXPECT_EQ(told, "");
  first.give_back();
  EXPECT_EQ(told, "2");
  EXPECT_FALSE(third.take());
  EXPECT_FALSE(first.take());
  EXPECT_TRUE(second.take());
  second.give_back();
  EXPECT_EQ(told, "23");
}

TEST(KeyShare, HasTheTurnsBackOfConnectionsThatEnd) {
  KeyShare share(Rights::read, {.turns = 1});
  std::optional<KeyShare::Turn> has(std::in_place, share, [] {}), waits(std::in_place, share, [] {});
  EXPECT_TRUE(has->take());
  EXPECT_FALSE(waits->take());
  bool told = false;
  KeyShare::Turn last(share, [&] { told = true; });
  EXPECT_FALSE(last.take());
  waits.reset();
  EXPECT_FALSE(told);
  has.reset();
  EXPECT_TRUE(told);
  last.give_back();
  EXPECT_TRUE(KeyShare::Turn(share, [] {}).take());
}

TEST(KeyShare, CountsTheOpenFilesOfAllClientsTogether) {
  OpenFiles files(id_of(1));
  KeyShare share(Rights::read, {.files = 2}), other(Rights::append, {.files = 2});
  const auto open = [&](uint8_t client, KeyShare& whose, int descriptor) {
    ServedFile file;
    file.descriptor = descriptor;  // of nobody: nothing is done with it
    return files.add(id_of(client), whose, std::move(file), nullptr);
  };
  const auto first = open(1, share, 1000);
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(open(2, share, 1001).ok());
  EXPECT_EQ(open(3, share, 1002).status().code(), StatusCode::resource_limit);
  EXPECT_EQ(open(3, share, -1).status().code(), StatusCode::resource_limit) << "though it needs none of the process";
  EXPECT_TRUE(open(3, other, 1002).ok());
  files.close(id_of(1), *first);
  share.limit_files(1);
  EXPECT_FALSE(open(3, share, 1003).ok()) << "the other one is as much as they may have now";
  share.limit_files(2);
  EXPECT_TRUE(open(3, share, 1003).ok());
}

}  // namespace
}  // namespace varve
