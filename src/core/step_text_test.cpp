#include "core/step_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace varve {
namespace {

TEST(StepText, ATimeIsAStepThatReadsAsItWasCalled) {
  for (const char* text :
       {"0.02", "0.2", "1e-05", "0.0001", "1.5", "0.30000000000000004", "-180.5", "-0.25", "1e+20", "123456.789"}) {
    const std::optional<uint64_t> step = parse_step(text);
    ASSERT_TRUE(step) << text;
    EXPECT_TRUE(time_of_step(*step)) << text;
    EXPECT_EQ(step_text(*step), text);
  }
  EXPECT_EQ(step_text(*step_of_time(-180)), "-180.0");
  EXPECT_EQ(step_text(*step_of_time(100000)), "100000.0");
  EXPECT_EQ(step_text(*step_of_time(0)), "0.0");
  EXPECT_EQ(step_of_time(-0.0), step_of_time(0.0));
  EXPECT_EQ(parse_step("0.020"), parse_step("2e-2"));
}

TEST(StepText, TimesHaveTheNumbersOfTheFormat) {
  EXPECT_EQ(step_of_time(0.02), 16110636874999927931U);
  EXPECT_EQ(step_of_time(1), 16136397464868487168U);
  EXPECT_EQ(step_of_time(-1), 11533718645695840255U);
}

TEST(StepText, ACountIsItself) {
  EXPECT_EQ(parse_step("0"), 0u);
  EXPECT_EQ(parse_step("9223372036854775807"), 9223372036854775807u);
  EXPECT_EQ(step_text(9223372036854775807u), "9223372036854775807");
  EXPECT_EQ(time_of_step(7), std::nullopt);
}

TEST(StepText, StepsAreInTheOrderOfTimes) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  // None so small that no step is its time.
  std::uniform_real_distribution<double> exponent(-500, 500), mantissa(0.5, 1);
  const auto any = [&](int scale) {
    return std::ldexp(random() % 2 == 0 ? mantissa(random) : -mantissa(random), scale);
  };
  for (int i = 0; i < 20'000; ++i) {
    const double a = any(static_cast<int>(exponent(random)));
    const double b = i % 2 == 0 ? std::nextafter(a, 1e300) : any(3);
    const std::optional<uint64_t> step_a = step_of_time(a), step_b = step_of_time(b);
    ASSERT_TRUE(step_a && step_b) << a << ' ' << b;
    EXPECT_EQ(*step_a < *step_b, a < b) << a << ' ' << b;
    EXPECT_EQ(time_of_step(*step_a), a);
    EXPECT_EQ(parse_step(step_text(*step_a)), *step_a) << step_text(*step_a);
  }
}

TEST(StepText, EachStepHasATextOfItsOwn) {
  for (const uint64_t step : {uint64_t{0}, uint64_t{12}, *step_of_time(12), *step_of_time(0), *step_of_time(1e15)})
    EXPECT_EQ(parse_step(step_text(step)), step) << step_text(step);
  EXPECT_EQ(namesake_of_step(12), step_of_time(12));
  EXPECT_EQ(namesake_of_step(*step_of_time(12)), 12u);
  EXPECT_EQ(namesake_of_step(*step_of_time(0.5)), std::nullopt);
  EXPECT_EQ(namesake_of_step(*step_of_time(-1)), std::nullopt);
  EXPECT_EQ(namesake_of_step(uint64_t{1} << 60), std::nullopt);
}

TEST(StepText, TimesReachAsFarAsTheFormatSays) {
  for (const double inside : {std::ldexp(1, -510), std::nextafter(std::ldexp(1, 513), 0)}) {
    ASSERT_TRUE(step_of_time(inside)) << inside;
    EXPECT_EQ(time_of_step(*step_of_time(inside)), inside);
    EXPECT_EQ(time_of_step(*step_of_time(-inside)), -inside);
  }
  for (const double outside : {std::nextafter(std::ldexp(1, -510), 0), std::ldexp(1, 513)})
    EXPECT_FALSE(step_of_time(outside)) << outside;
}

TEST(StepText, WhatIsNoNumberIsNoStep) {
  for (const char* text : {"",
                           "-",
                           ".",
                           ".5",
                           "5.",
                           "1e",
                           "e5",
                           "1e-",
                           "nan",
                           "inf",
                           "-inf",
                           "0x10",
                           "1.2.3",
                           " 1",
                           "1 ",
                           "+1",
                           "1e400",
                           "1e-300",
                           "9223372036854775808",
                           "99999999999999999999999"})
    EXPECT_FALSE(parse_step(text)) << text;
  for (const double time : {std::nan(""), 1e300, 1e-300, -1e300, HUGE_VAL, 5e-324})
    EXPECT_FALSE(step_of_time(time)) << time;
  // Not all numbers of the upper half are times: those read as counts.
  for (const uint64_t step : {(uint64_t{3} << 62) - 1, (uint64_t{3} << 62) - 2, (uint64_t{3} << 62) + 1}) {
    EXPECT_FALSE(time_of_step(step)) << step;
    EXPECT_EQ(step_text(step), std::to_string(step));
  }
}

TEST(StepText, ANameIsATimeIfItIsNothingElse) {
  EXPECT_EQ(step_of_name("0.02"), step_of_time(0.02));
  EXPECT_EQ(step_of_name("1e-05"), step_of_time(1e-05));
  EXPECT_EQ(step_of_name("2"), 2u);
  EXPECT_EQ(step_of_name("0007"), 7u);
  EXPECT_EQ(step_of_name("2", true), step_of_time(2));
  EXPECT_EQ(step_of_name("DD0006"), 6u);
  EXPECT_EQ(step_of_name("DD0006", true), 6u);
  EXPECT_EQ(step_of_name("20260101120000000", true), 20260101120000000u) << "no double tells it from its neighbours";
  EXPECT_EQ(step_of_name("dump-2.0117"), 117u);
  EXPECT_EQ(step_of_name("run3.dump12"), 12u);
  EXPECT_EQ(step_of_name("restart.7.tmp"), 7u);
  for (const char* name : {"", "output", "x99999999999999999999999"}) EXPECT_FALSE(step_of_name(name)) << name;
}

}  // namespace
}  // namespace varve
