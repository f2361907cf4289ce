#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace varve {

/// One fact of a text of metrics: "varve_run_newest_step{job="heat"} 40".
struct MetricsSample {
  std::string name;
  std::map<std::string, std::string> labels{};
  double value = 0;

  /// Empty: it has none of this name.
  std::string label(const std::string& name) const;
};

/// What a text of Prometheus's format says, as others may have written it: comments, empty lines and lines that make no
/// sense are left out, and so is what comes after the first many samples.
std::vector<MetricsSample> parse_metrics(std::string_view text);

}  // namespace varve
