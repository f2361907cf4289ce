#include "core/metrics.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

namespace varve {
namespace {

Metrics some_metrics() {
  Metrics metrics;
  metrics.counter("varve_sets_saved", "Sets that were saved.").sample(3, {{"job", "a\"b\\c\nd"}}).sample(0.5);
  metrics.gauge("varve_queue_bytes", "Bytes on their way.").sample(1.5e9);
  metrics.histogram("varve_request_seconds", "How long requests took.")
      .spread({0.1, 1}, {2, 0, 1}, 7.5, {{"kind", "x"}});
  return metrics;
}

constexpr const char* kQueueAndRequests =
    "# HELP varve_queue_bytes Bytes on their way.\n"
    "# TYPE varve_queue_bytes gauge\n"
    "varve_queue_bytes 1500000000\n"
    "# HELP varve_request_seconds How long requests took.\n"
    "# TYPE varve_request_seconds histogram\n"
    "varve_request_seconds_bucket{kind=\"x\",le=\"0.1\"} 2\n"
    "varve_request_seconds_bucket{kind=\"x\",le=\"1\"} 2\n"
    "varve_request_seconds_bucket{kind=\"x\",le=\"+Inf\"} 3\n"
    "varve_request_seconds_sum{kind=\"x\"} 7.5\n"
    "varve_request_seconds_count{kind=\"x\"} 3\n";

TEST(MetricsText, IsAsPrometheusReadsIt) {
  EXPECT_EQ(some_metrics().text(MetricsFormat::prometheus),
            std::string("# HELP varve_sets_saved_total Sets that were saved.\n"
                        "# TYPE varve_sets_saved_total counter\n"
                        "varve_sets_saved_total{job=\"a\\\"b\\\\c\\nd\"} 3\n"
                        "varve_sets_saved_total 0.5\n") +
                kQueueAndRequests);
}

TEST(MetricsText, IsAsOpenMetricsSays) {
  EXPECT_EQ(some_metrics().text(MetricsFormat::open_metrics),
            std::string("# HELP varve_sets_saved Sets that were saved.\n"
                        "# TYPE varve_sets_saved counter\n"
                        "varve_sets_saved_total{job=\"a\\\"b\\\\c\\nd\"} 3\n"
                        "varve_sets_saved_total 0.5\n") +
                kQueueAndRequests + "# EOF\n");
}

TEST(MetricsText, HasCommonLabelsBeforeEachSamplesOwn) {
  Metrics metrics = Metrics::with({{"job", "heat"}});
  metrics.gauge("x", "X.").sample(1).sample(2, {{"level", "far"}});
  metrics.histogram("y", "Y.").spread({}, {3}, 4);
  EXPECT_EQ(metrics.text(MetricsFormat::prometheus),
            "# HELP x X.\n# TYPE x gauge\nx{job=\"heat\"} 1\nx{job=\"heat\",level=\"far\"} 2\n"
            "# HELP y Y.\n# TYPE y histogram\ny_bucket{job=\"heat\",le=\"+Inf\"} 3\ny_sum{job=\"heat\"} 4\n"
            "y_count{job=\"heat\"} 3\n");
}

TEST(MetricsText, IsUtf8WhateverNamesAre) {
  Metrics metrics;
  metrics.gauge("x", "X.").sample(1, {{"job", "caf\xe9 caf\xc3\xa9 \xe2\x82"}});
  EXPECT_EQ(metrics.text(MetricsFormat::prometheus), "# HELP x X.\n# TYPE x gauge\nx{job=\"caf? caf\xc3\xa9 ??\"} 1\n");
}

TEST(MetricsText, KnowsWhatIsNoNumber) {
  Metrics metrics;
  metrics.gauge("x", "X.")
      .sample(std::numeric_limits<double>::infinity())
      .sample(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(metrics.text(MetricsFormat::prometheus), "# HELP x X.\n# TYPE x gauge\nx +Inf\nx NaN\n");
}

TEST(MetricsText, GetsIntoItsFileAsAWhole) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("varve-metrics-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const std::string path = folder / "varve.prom";
  for (int time = 0; time < 2; ++time) ASSERT_TRUE(write_metrics_file(path, some_metrics()).ok());
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), some_metrics().text(MetricsFormat::prometheus));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()), 1);
  EXPECT_EQ(write_metrics_file(folder / "none" / "varve.prom", some_metrics()).code(), StatusCode::not_found);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace varve
