#include "monitor/metrics_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "core/metrics.h"

namespace varve {
namespace {

TEST(MetricsText, IsReadAsItWasWritten) {
  Metrics metrics;
  metrics.gauge("varve_a", "Help.").sample(1.5).sample(-2e300, {{"job", "a\"b\\c\nd"}, {"level", "dir:/x"}});
  metrics.counter("varve_b", "More.").sample(7, {{"cause", "copy"}});
  const auto samples = parse_metrics(metrics.text(MetricsFormat::prometheus));
  ASSERT_EQ(samples.size(), 3u);
  EXPECT_EQ(samples[0].name, "varve_a");
  EXPECT_EQ(samples[0].value, 1.5);
  EXPECT_EQ(samples[1].label("job"), "a\"b\\c\nd");
  EXPECT_EQ(samples[1].label("level"), "dir:/x");
  EXPECT_EQ(samples[1].label("none"), "");
  EXPECT_EQ(samples[1].value, -2e300);
  EXPECT_EQ(samples[2].name, "varve_b_total");
}

TEST(MetricsText, MayHaveBlanksTimesAndNumbersThatAreNone) {
  const auto samples = parse_metrics("a{ x=\"1\", y=\"2\", } 3 1700000000\nb NaN\nc +Inf\n# EOF\n");
  ASSERT_EQ(samples.size(), 3u);
  EXPECT_EQ(samples[0].label("y"), "2");
  EXPECT_EQ(samples[0].value, 3);
  EXPECT_TRUE(std::isnan(samples[1].value));
  EXPECT_TRUE(std::isinf(samples[2].value));
}

TEST(MetricsText, OfNoSenseIsLeftOut) {
  for (const char* line : {"", "{}", "a", "a{", "a{x", "a{x=", "a{x=\"", "a{x=\"1\"", "a{x=\"\\", "a{=\"1\"} 2", "a{} ",
                           "a b", "a 1x", "\xff\xfe 1", "a{x=\"1\" y=} 1"})
    EXPECT_TRUE(parse_metrics(line).empty()) << line;
}

TEST(MetricsText, OfAnyBytesHarmsNothing) {
  std::mt19937 random(1);
  const std::string alphabet = "ab{}\"\\=,# \n019.+eEIN\xc3";
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (size_t i = random() % 60; i > 0; --i) text += alphabet[random() % alphabet.size()];
    for (const MetricsSample& sample : parse_metrics(text)) EXPECT_FALSE(sample.name.empty()) << text;
  }
}

}  // namespace
}  // namespace varve
