#include "format/set_origin.h"

#include <gtest/gtest.h>

namespace varve {
namespace {

const UniqueId kRun = UniqueId::parse("000102030405060708090a0b0c0d0e0f").value();

TEST(SetOrigin, TextAndMeaningGoRound) {
  const SetOrigin origin{kRun, 12};
  EXPECT_EQ(origin.text(), "run 000102030405060708090a0b0c0d0e0f\nranks 12\n");
  EXPECT_EQ(SetOrigin::parse(origin.text()).value(), origin);
  EXPECT_LE(SetOrigin({kRun, UINT32_MAX}).text().size(), SetOrigin::kBytesMax);
}

TEST(SetOrigin, RefusesWhatItDidNotWrite) {
  for (const char* text :
       {"", "run", "run 000102030405060708090a0b0c0d0e0f", "run 000102030405060708090a0b0c0d0e0f\nranks 12",
        "run 000102030405060708090a0b0c0d0e0f\nranks \n", "run 000102030405060708090a0b0c0d0e0f\nranks 012\n",
        "run 000102030405060708090A0b0c0d0e0f\nranks 12\n", "run 000102030405060708090a0b0c0d0e0f\nranks 12\n\n",
        "run 000102030405060708090a0b0c0d0e0f\nranks 99999999999\n"}) {
    EXPECT_EQ(SetOrigin::parse(text).status().code(), StatusCode::corrupt) << text;
  }
}

TEST(SetOrigin, HasAFileOfItsOwnForEachGroup) {
  EXPECT_EQ(SetOrigin::file_name(4), "origin-000004.varve");
  EXPECT_TRUE(SetOrigin::is_file_name(SetOrigin::file_name(4)));
  EXPECT_FALSE(SetOrigin::is_file_name("rank-000004.varve"));
}

}  // namespace
}  // namespace varve
