#include "core/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "core/state_folder.h"

namespace varve {

namespace {
/// How many bytes a character of UTF-8 has that begins here; 0: there is none.
size_t utf8_bytes(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t bytes = first < 0x80                    ? 1
                       : first >= 0xc2 && first < 0xe0 ? 2
                       : first >= 0xe0 && first < 0xf0 ? 3
                       : first >= 0xf0 && first < 0xf5 ? 4
                                                       : 0;
  if (bytes > text.size()) return 0;
  for (size_t i = 1; i < bytes; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return 0;
  }
  return bytes;
}

/// As both formats have it in texts in quotes: UTF-8, or else nothing of it would be read.
std::string escaped(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = utf8_bytes(text.substr(at));
    if (bytes != 1) {
      out += bytes == 0 ? "?" : text.substr(at, bytes);
      at += std::max<size_t>(bytes, 1);
      continue;
    }
    const char c = text[at++];
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

std::string number_text(double value) {
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return std::isnan(value) ? "NaN" : fmt::format("{}", value);
}

std::string labels_text(const Metrics::Labels& labels, std::string_view bound = {}) {
  std::string text;
  for (const auto& [name, value] : labels)
    text += fmt::format("{}{}=\"{}\"", text.empty() ? "" : ",", name, escaped(value));
  if (!bound.empty()) text += fmt::format("{}le=\"{}\"", text.empty() ? "" : ",", bound);
  return text.empty() ? text : "{" + text + "}";
}
}  // namespace

Metrics& Metrics::begin(Type type, std::string_view name, std::string_view help) {
  families_.push_back({type, std::string(name), std::string(help), {}});
  return *this;
}

Metrics::Labels Metrics::with_common(const Labels& labels) const {
  Labels all = common_;
  all.insert(all.end(), labels.begin(), labels.end());
  return all;
}

Metrics& Metrics::counter(std::string_view name, std::string_view help) { return begin(Type::counter, name, help); }
Metrics& Metrics::gauge(std::string_view name, std::string_view help) { return begin(Type::gauge, name, help); }
Metrics& Metrics::histogram(std::string_view name, std::string_view help) { return begin(Type::histogram, name, help); }

Metrics& Metrics::sample(double value, const Labels& labels) {
  Family& family = families_.back();
  family.samples.push_back({family.type == Type::counter ? "_total" : "", labels_text(with_common(labels)), value});
  return *this;
}

Metrics& Metrics::spread(const std::vector<double>& bounds, const std::vector<uint64_t>& counts, double sum,
                         const Labels& own_labels) {
  Family& family = families_.back();
  const Labels labels = with_common(own_labels);
  uint64_t count = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    count += counts[i];
    const std::string bound = i < bounds.size() ? number_text(bounds[i]) : "+Inf";
    family.samples.push_back({"_bucket", labels_text(labels, bound), static_cast<double>(count)});
  }
  family.samples.push_back({"_sum", labels_text(labels), sum});
  family.samples.push_back({"_count", labels_text(labels), static_cast<double>(count)});
  return *this;
}

std::string Metrics::text(MetricsFormat format) const {
  static constexpr const char* type_names[] = {"counter", "gauge", "histogram"};
  const bool open = format == MetricsFormat::open_metrics;
  std::string text;
  for (const Family& family : families_) {
    // A counter's own name has no `_total` in OpenMetrics alone.
    const std::string name = family.name + (family.type == Type::counter && !open ? "_total" : "");
    text += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, family.help, name,
                        type_names[static_cast<size_t>(family.type)]);
    for (const Sample& sample : family.samples)
      text += fmt::format("{}{}{} {}\n", family.name, sample.suffix, sample.labels, number_text(sample.value));
  }
  if (open) text += "# EOF\n";
  return text;
}

std::string_view Metrics::content_type(MetricsFormat format) {
  return format == MetricsFormat::open_metrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                               : "text/plain; version=0.0.4; charset=utf-8";
}

Status write_metrics_file(const std::string& path, const Metrics& metrics, uint32_t mode) {
  return replace_text_file(path, metrics.text(MetricsFormat::prometheus), mode);
}

}  // namespace varve
