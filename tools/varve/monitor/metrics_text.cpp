#include "monitor/metrics_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

namespace varve {

std::string MetricsSample::label(const std::string& which) const {
  const auto found = labels.find(which);
  return found == labels.end() ? std::string() : found->second;
}

namespace {
constexpr size_t kSamplesMax = 100'000, kLabelsMax = 64;

bool is_name_byte(char byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') || byte == '_' ||
         byte == ':';
}

/// Takes the bytes of a name from the begin of `text`.
std::string take_name(std::string_view& text) {
  size_t length = 0;
  while (length < text.size() && is_name_byte(text[length])) ++length;
  const std::string name(text.substr(0, length));
  text.remove_prefix(length);
  return name;
}

bool take_byte(std::string_view& text, char byte) {
  if (text.empty() || text.front() != byte) return false;
  text.remove_prefix(1);
  return true;
}

void skip_blanks(std::string_view& text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
}

/// What stands between quotes; the first one is gone already.
std::optional<std::string> take_quoted(std::string_view& text) {
  std::string value;
  while (!text.empty()) {
    const char byte = text.front();
    text.remove_prefix(1);
    if (byte == '"') return value;
    if (byte != '\\') {
      value += byte;
      continue;
    }
    if (text.empty()) return std::nullopt;
    value += text.front() == 'n' ? '\n' : text.front();
    text.remove_prefix(1);
  }
  return std::nullopt;
}

bool take_labels(std::string_view& text, MetricsSample& sample) {
  if (!take_byte(text, '{')) return true;
  for (;;) {
    skip_blanks(text);
    if (take_byte(text, '}')) return true;
    const std::string name = take_name(text);
    if (name.empty() || !take_byte(text, '=') || !take_byte(text, '"')) return false;
    const std::optional<std::string> value = take_quoted(text);
    if (!value || sample.labels.size() == kLabelsMax) return false;
    sample.labels[name] = *value;
    skip_blanks(text);
    take_byte(text, ',');
  }
}

std::optional<double> value_of(std::string_view text) {
  text = text.substr(0, text.find_first_of(" \t\r"));  // a time may follow
  if (text == "+Inf") return std::numeric_limits<double>::infinity();
  if (text == "-Inf") return -std::numeric_limits<double>::infinity();
  if (text == "NaN") return std::nan("");
  double value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

std::optional<MetricsSample> parse_sample(std::string_view line) {
  MetricsSample sample;
  sample.name = take_name(line);
  if (sample.name.empty() || !take_labels(line, sample)) return std::nullopt;
  skip_blanks(line);
  const std::optional<double> value = value_of(line);
  if (!value) return std::nullopt;
  sample.value = *value;
  return sample;
}
}  // namespace

std::vector<MetricsSample> parse_metrics(std::string_view text) {
  std::vector<MetricsSample> samples;
  while (!text.empty() && samples.size() < kSamplesMax) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (std::optional<MetricsSample> sample = parse_sample(text.substr(0, end))) samples.push_back(*std::move(sample));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return samples;
}

}  // namespace varve
