#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "varve/status.h"

namespace varve {

/// The two spellings of facts for monitoring: what node_exporter reads from files and old scrapers ask for, and
/// OpenMetrics 1.0.
enum class MetricsFormat : uint8_t { prometheus, open_metrics };

/// Facts about a process or a store, for monitoring. Names follow Prometheus's conventions: base units, `_seconds`,
/// `_bytes`; without `_total`, which counters get. Labels are name and value. One thread.
class Metrics {
 public:
  using Labels = std::vector<std::pair<std::string_view, std::string>>;

  /// All samples have these labels before their own, so that what several processes tell goes together.
  static Metrics with(Labels common) {
    Metrics metrics;
    metrics.common_ = std::move(common);
    return metrics;
  }

  /// What only grows while a process lives.
  Metrics& counter(std::string_view name, std::string_view help);
  /// What goes up and down.
  Metrics& gauge(std::string_view name, std::string_view help);
  /// How often something took how long. Samples are added by spread().
  Metrics& histogram(std::string_view name, std::string_view help);

  /// A sample of the family that was begun last.
  Metrics& sample(double value, const Labels& labels = {});
  /// Of a histogram: `counts[i]` were at most `bounds[i]`, and above the bound before; the last count, for which there
  /// is no bound, is of the rest.
  Metrics& spread(const std::vector<double>& bounds, const std::vector<uint64_t>& counts, double sum,
                  const Labels& labels = {});

  std::string text(MetricsFormat format) const;
  /// "text/plain; version=0.0.4", ...
  static std::string_view content_type(MetricsFormat format);

 private:
  enum class Type : uint8_t { counter, gauge, histogram };
  struct Sample {
    std::string suffix, labels;
    double value = 0;
  };
  struct Family {
    Type type = Type::gauge;
    std::string name, help;
    std::vector<Sample> samples;
  };
  Metrics& begin(Type type, std::string_view name, std::string_view help);
  Labels with_common(const Labels& labels) const;

  Labels common_;
  std::vector<Family> families_;
};

/// Puts the text where a collector reads it, whole or not at all: under another name first. Not durable. `path`: in a
/// folder of node_exporter's textfile collector its name ends with ".prom". `mode`: who may read it.
Status write_metrics_file(const std::string& path, const Metrics& metrics, uint32_t mode = 0644);

}  // namespace varve
