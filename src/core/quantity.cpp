#include "core/quantity.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

namespace varve {

namespace {
struct Quantity {
  double number;
  std::string_view unit;  ///< what follows the number
};

/// A finite number from 0 on at the begin of `text`.
std::optional<Quantity> split_quantity(std::string_view text, std::chars_format format) {
  double number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, format);
  if (error != std::errc() || !(number >= 0) || !std::isfinite(number)) return std::nullopt;
  return Quantity{number, text.substr(static_cast<size_t>(end - text.data()))};
}

/// 1024 to the power that a unit such as "", "B", "k", "M" or "GiB" means.
std::optional<double> binary_factor(std::string_view unit) {
  if (unit.empty() || unit == "B") return 1.0;
  const size_t power = std::string_view("KMGT").find(static_cast<char>(unit[0] & ~0x20));
  if (power == std::string_view::npos || (unit.size() > 1 && unit.substr(1) != "iB")) return std::nullopt;
  return std::ldexp(1.0, 10 * static_cast<int>(power + 1));
}

/// The same for "kB", which is written "KB" as well, "MB", "GB", "TB": they count in 1000s.
std::optional<double> decimal_factor(std::string_view unit) {
  if (unit == "KB") return 1000.0;
  const size_t power =
      unit.size() == 2 && unit[1] == 'B' ? std::string_view("kMGT").find(unit[0]) : std::string_view::npos;
  if (power == std::string_view::npos) return std::nullopt;
  return std::pow(1000.0, static_cast<double>(power + 1));
}

std::optional<double> seconds_of_unit(std::string_view unit) {
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"ms", 1e-3}, {"s", 1.0}, {"min", 60.0}, {"h", 3600.0}, {"d", 86400.0}};
  for (const auto& [name, seconds] : kUnits) {
    if (unit == name) return seconds;
  }
  return std::nullopt;
}

int three_digits(double value) { return value < 9.995 ? 2 : value < 99.95 ? 1 : 0; }
}  // namespace

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n";
  const size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

Result<uint64_t> parse_number(std::string_view text, uint64_t max) {
  uint64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range || (error == std::errc() && value > max)) {
    return Status::invalid_argument(fmt::format("a number up to {} is wanted", max), std::string(text));
  }
  if (error != std::errc() || end != text.data() + text.size())
    return Status::invalid_argument("not a whole number", std::string(text));
  return value;
}

Result<uint64_t> parse_size(std::string_view text) {
  const std::optional<Quantity> quantity = split_quantity(text, std::chars_format::fixed);
  const std::optional<double> factor = quantity ? binary_factor(quantity->unit) : std::nullopt;
  if (!factor || quantity->number * *factor >= std::ldexp(1.0, 63)) {
    return Status::invalid_argument("not a size", std::string(text),
                                    "write bytes, or a number with K, M, G or T, such as 512MiB");
  }
  return static_cast<uint64_t>(quantity->number * *factor);
}

Result<double> parse_amount(std::string_view text) {
  const std::optional<Quantity> quantity = split_quantity(text, std::chars_format::general);
  std::optional<double> factor;
  if (quantity) factor = binary_factor(quantity->unit);
  if (quantity && !factor) factor = decimal_factor(quantity->unit);
  if (!factor || !std::isfinite(quantity->number * *factor)) {
    return Status::invalid_argument("not a size", std::string(text),
                                    "write bytes, or a number with a unit, such as 512MiB or 6.25GB");
  }
  return quantity->number * *factor;
}

Result<double> parse_rate(std::string_view text) {
  const std::string_view amount = text.ends_with("/s") ? text.substr(0, text.size() - 2) : text;
  Result<double> rate = parse_amount(amount);
  if (!rate.ok() || *rate <= 0) {
    return Status::invalid_argument("not a bandwidth", std::string(text),
                                    "write bytes per second above 0, such as 100MB/s or 3G");
  }
  return rate;
}

Result<double> parse_duration(std::string_view text) {
  const Status bad = Status::invalid_argument(
      "not a duration", std::string(text), "write seconds, or numbers with ms, s, min, h or d, such as 90 or 1h30min");
  double seconds = 0;
  std::string_view rest = text;
  do {
    const std::optional<Quantity> part = split_quantity(rest, std::chars_format::general);
    if (!part) return bad;
    // Only a lone number is in seconds: "1h30" might be meant for minutes.
    if (part->unit.empty()) return rest.size() == text.size() ? Result<double>(part->number) : bad;
    const size_t unit_end = std::min(part->unit.find_first_of("0123456789."), part->unit.size());
    const std::optional<double> unit_seconds = seconds_of_unit(part->unit.substr(0, unit_end));
    if (!unit_seconds) return bad;
    seconds += part->number * *unit_seconds;
    rest = part->unit.substr(unit_end);
  } while (!rest.empty());
  return std::isfinite(seconds) ? Result<double>(seconds) : bad;
}

std::string format_size(uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  std::string_view unit;
  for (std::string_view next : {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}) {
    value /= 1024;
    unit = next;
    if (value < 999.5) break;
  }
  const int decimals = value < 0.9995 ? 3 : three_digits(value);
  return fmt::format("{:.{}f} {}", value, decimals, unit);
}

std::string format_ratio(uint64_t raw_bytes, uint64_t stored_bytes) {
  if (stored_bytes == 0) return "-";
  const double ratio = static_cast<double>(raw_bytes) / static_cast<double>(stored_bytes);
  return ratio < 1000 ? fmt::format("{:.2f}x", ratio) : fmt::format("{:.0f}x", ratio);
}

std::string format_seconds(double seconds) {
  if (seconds > 0 && seconds < 0.001) return fmt::format("{:.2f} ms", seconds * 1e3);
  const int decimals = seconds < 0.1 ? 3 : seconds < 10 ? 2 : seconds < 100 ? 1 : 0;
  return fmt::format("{:.{}f} s", seconds, decimals);
}

std::string format_duration(double seconds) {
  if (seconds < 120) return format_seconds(seconds);
  if (seconds < 7200) return fmt::format("{:.{}f} min", seconds / 60, three_digits(seconds / 60));
  if (seconds < 172800) return fmt::format("{:.{}f} h", seconds / 3600, three_digits(seconds / 3600));
  return fmt::format("{:.{}f} d", seconds / 86400, three_digits(seconds / 86400));
}

std::string format_rate(double bytes_per_second) {
  if (bytes_per_second < 1000) return fmt::format("{:.0f} B/s", bytes_per_second);
  double value = bytes_per_second;
  std::string_view unit;
  for (std::string_view next : {"kB/s", "MB/s", "GB/s", "TB/s", "PB/s"}) {
    value /= 1000;
    unit = next;
    if (value < 999.5) break;
  }
  return fmt::format("{:.{}f} {}", value, three_digits(value), unit);
}

std::string format_percent(double fraction) {
  const double percent = fraction * 100;
  return fmt::format("{:.{}f} %", percent, percent < 0.995 ? 3 : three_digits(percent));
}

}  // namespace varve
