#include "core/step_text.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>

namespace varve {

namespace {
constexpr uint64_t kTimes = uint64_t{1} << 63, kNotNegative = uint64_t{1} << 62;
constexpr unsigned kMantissaBits = 52;
/// Exponents of doubles, as IEEE 754 stores them, that have one of 10 bits here: 1 to 1023. 0 is that of zero.
constexpr uint64_t kExponentBase = 512, kExponentMax = 1023;
/// Counts that a double tells from their neighbours.
constexpr double kExactCounts = 9007199254740992.0;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_digits(std::string_view text) { return !text.empty() && std::all_of(text.begin(), text.end(), is_digit); }

std::optional<uint64_t> parse_count(std::string_view digits) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || value >= kTimes) return std::nullopt;
  return value;
}

std::optional<double> parse_decimal(std::string_view text) {
  const std::string_view magnitude = text.starts_with('-') ? text.substr(1) : text;
  if (magnitude.empty() || !is_digit(magnitude.front()) || !is_digit(magnitude.back())) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}
}  // namespace

std::optional<uint64_t> step_of_time(double time) {
  if (time == 0) return kTimes | kNotNegative;
  const auto bits = std::bit_cast<uint64_t>(std::fabs(time));
  const uint64_t exponent = bits >> kMantissaBits;
  if (exponent <= kExponentBase || exponent > kExponentBase + kExponentMax) return std::nullopt;
  const uint64_t magnitude = bits - (kExponentBase << kMantissaBits);
  return std::signbit(time) ? kTimes | (kNotNegative - 1 - magnitude) : kTimes | kNotNegative | magnitude;
}

std::optional<double> time_of_step(uint64_t step) {
  if (step < kTimes) return std::nullopt;
  const bool negative = (step & kNotNegative) == 0;
  const uint64_t rest = step & (kNotNegative - 1);
  const uint64_t magnitude = negative ? kNotNegative - 1 - rest : rest;
  if (magnitude == 0) return negative ? std::nullopt : std::optional(0.0);
  if (magnitude >> kMantissaBits == 0) return std::nullopt;
  const auto time = std::bit_cast<double>(magnitude + (kExponentBase << kMantissaBits));
  return negative ? -time : time;
}

std::string step_text(uint64_t step) {
  const std::optional<double> time = time_of_step(step);
  if (!time) return std::to_string(step);
  const double size = std::fabs(*time);
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e15);
  std::array<char, 64> text{};
  const auto written = std::to_chars(text.data(), text.data() + text.size(), *time,
                                     plain ? std::chars_format::fixed : std::chars_format::scientific);
  const std::string_view digits(text.data(), static_cast<size_t>(written.ptr - text.data()));
  const bool looks_like_count = digits.find_first_of(".e") == std::string_view::npos;
  return std::string(digits) + (looks_like_count ? ".0" : "");
}

std::optional<uint64_t> parse_step(std::string_view text) {
  if (is_digits(text)) return parse_count(text);
  const std::optional<double> time = parse_decimal(text);
  return time ? step_of_time(*time) : std::nullopt;
}

std::optional<uint64_t> namesake_of_step(uint64_t step) {
  if (const std::optional<double> time = time_of_step(step)) {
    if (*time < 0 || *time >= kExactCounts || std::trunc(*time) != *time) return std::nullopt;
    return static_cast<uint64_t>(*time);
  }
  if (step >= static_cast<uint64_t>(kExactCounts)) return std::nullopt;
  return step_of_time(static_cast<double>(step));
}

std::optional<uint64_t> step_of_name(std::string_view name, bool among_times) {
  if (is_name_of_time(name)) return parse_step(name);
  if (is_digits(name)) {
    const std::optional<uint64_t> count = parse_count(name);
    return count && among_times ? namesake_of_step(*count).value_or(*count) : count;
  }
  const auto last = std::find_if(name.rbegin(), name.rend(), is_digit);
  const auto first = std::find_if_not(last, name.rend(), is_digit);
  return parse_count(name.substr(static_cast<size_t>(name.rend() - first), static_cast<size_t>(first - last)));
}

bool is_name_of_time(std::string_view name) { return !is_digits(name) && parse_step(name).has_value(); }

}  // namespace varve
