#include "mount/set_listing.h"

#include <gtest/gtest.h>

#include "core/step_text.h"

namespace varve {
namespace {

TEST(StepName, IsTheLastNumberOfTheName) {
  for (const auto& [name, step] : {std::pair{"7", 7}, {"7.tmp", 7}, {"DD0006", 6}, {"run3.dump12", 12}, {"0", 0}})
    EXPECT_EQ(parse_step_name(name)->step, static_cast<uint64_t>(step)) << name;
  EXPECT_TRUE(parse_step_name("7")->canonical);
  EXPECT_FALSE(parse_step_name("07")->canonical);
  EXPECT_FALSE(parse_step_name("7.tmp")->canonical);
  EXPECT_TRUE(parse_step_name("DD0006.tmp")->temporary);
  EXPECT_FALSE(parse_step_name("DD0006")->temporary);
}

TEST(StepName, MayBeATime) {
  EXPECT_EQ(parse_step_name("0.02")->step, step_of_time(0.02));
  EXPECT_TRUE(parse_step_name("0.02")->canonical);
  EXPECT_FALSE(parse_step_name("0.020")->canonical);
  EXPECT_TRUE(parse_step_name("0.02.tmp")->temporary);
  EXPECT_EQ(parse_step_name("0.02.tmp")->step, step_of_time(0.02));
  EXPECT_EQ(parse_step_name("3")->step, 3u);
  EXPECT_EQ(parse_step_name("3", true)->step, step_of_time(3));
  EXPECT_FALSE(parse_step_name("3", true)->canonical);
  EXPECT_TRUE(parse_step_name("3.0")->canonical);
}

TEST(StepName, RefusesWhatTellsNoStep) {
  for (const char* name : {"", "output", ".tmp", ".7", "-7", "a@7", "99999999999999999999999", "x.tmp"})
    EXPECT_FALSE(parse_step_name(name).has_value()) << name;
  EXPECT_FALSE(parse_step_name(std::string(101, '1')).has_value());
}

}  // namespace
}  // namespace varve
