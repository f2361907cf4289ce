#include "cli/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <ctime>

namespace varve::cli {

namespace {
constexpr uint32_t kNotUtf8 = UINT32_MAX;

/// The character at the start of `text` and its length in bytes; kNotUtf8 and 1 if there is none.
struct Character {
  uint32_t code;
  size_t bytes;
};

Character first_character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return {lead, 1};
  const size_t length = lead >= 0xF0 && lead < 0xF5 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC2 ? 2 : 0;
  if (length == 0 || lead >= 0xF5 || text.size() < length) return {kNotUtf8, 1};
  uint32_t code = lead & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte & 0xC0) != 0x80) return {kNotUtf8, 1};
    code = code << 6 | (byte & 0x3Fu);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool surrogate = code >= 0xD800 && code < 0xE000;
  if (overlong || surrogate || code > 0x10FFFF) return {kNotUtf8, 1};
  return {code, length};
}

bool is_harmless(uint32_t code) {
  const bool control = code < 0x20 || (code >= 0x7F && code < 0xA0);
  const bool reorders = code == 0x061C || code == 0x200E || code == 0x200F || (code >= 0x2028 && code <= 0x202E) ||
                        (code >= 0x2066 && code <= 0x2069);
  return code != kNotUtf8 && !control && !reorders;
}

std::string escape(std::string_view text, bool inside_quotes) {
  std::string escaped;
  while (!text.empty()) {
    const auto [code, length] = first_character(text);
    const char byte = text[0];
    if (is_harmless(code)) {
      if (inside_quotes && (byte == '"' || byte == '\\')) escaped += '\\';
      escaped += text.substr(0, length);
    } else if (byte == '\n') {
      escaped += "\\n";
    } else if (byte == '\t') {
      escaped += "\\t";
    } else if (byte == '\r') {
      escaped += "\\r";
    } else if (code == kNotUtf8 || code < 0x80) {
      escaped += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    } else {
      escaped += fmt::format("\\u{{{:x}}}", code);
    }
    text.remove_prefix(length);
  }
  return escaped;
}

/// Columns that `text` takes on a terminal, if no character is wide.
size_t display_width(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }));
}
}  // namespace

std::string format_size(uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  std::string_view unit;
  for (std::string_view next : {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}) {
    value /= 1024;
    unit = next;
    if (value < 999.5) break;
  }
  const int decimals = value < 0.9995 ? 3 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, decimals, unit);
}

std::string format_ratio(uint64_t raw_bytes, uint64_t stored_bytes) {
  if (stored_bytes == 0) return "-";
  const double ratio = static_cast<double>(raw_bytes) / static_cast<double>(stored_bytes);
  return ratio < 1000 ? fmt::format("{:.2f}x", ratio) : fmt::format("{:.0f}x", ratio);
}

std::string format_seconds(double seconds) {
  const int decimals = seconds < 0.1 ? 3 : seconds < 10 ? 2 : seconds < 100 ? 1 : 0;
  return fmt::format("{:.{}f} s", seconds, decimals);
}

std::string format_clock(double seconds) {
  const auto whole = static_cast<uint64_t>(std::clamp(seconds, 0.0, 1e9));
  const uint64_t hours = whole / 3600, minutes = whole / 60 % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60)
                   : fmt::format("{}:{:02}", minutes, whole % 60);
}

std::string format_time(int64_t seconds_since_1970) {
  const auto time = static_cast<std::time_t>(seconds_since_1970);
  std::tm local{};
  std::array<char, 64> text;
  if (::localtime_r(&time, &local) == nullptr) return "-";
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &local)};
}

std::string format_shape(const std::vector<uint64_t>& shape) {
  return shape.empty() ? "scalar" : fmt::format("{}", fmt::join(shape, "x"));
}

std::string format_count(uint64_t count, std::string_view singular, std::string_view plural) {
  return fmt::format("{} {}", count, count == 1 ? singular : plural);
}

std::string escape_text(std::string_view text) { return escape(text, /*inside_quotes=*/false); }

std::string quote_name(std::string_view name) {
  std::string_view rest = name;
  bool plain = !name.empty() && name.front() != '"' && name.front() != ' ' && name.back() != ' ';
  while (plain && !rest.empty()) {
    const auto [code, length] = first_character(rest);
    plain = is_harmless(code);
    rest.remove_prefix(length);
  }
  return plain ? std::string(name) : '"' + escape(name, /*inside_quotes=*/true) + '"';
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
  const Status bad = Status::invalid_argument("not a size", std::string(text),
                                              "write bytes, or a number with K, M, G or T, such as 512MiB");
  double number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc() || !(number >= 0)) return bad;
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  double factor = 1;
  if (!unit.empty() && unit != "B") {
    const size_t power = std::string_view("KMGT").find(static_cast<char>(unit[0] & ~0x20));
    if (power == std::string_view::npos || (unit.size() > 1 && unit.substr(1) != "iB")) return bad;
    factor = std::ldexp(1.0, 10 * static_cast<int>(power + 1));
  }
  if (number * factor >= std::ldexp(1.0, 63)) return bad;
  return static_cast<uint64_t>(number * factor);
}

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

void Table::add_row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

std::string Table::render(std::string_view indent) const {
  std::vector<size_t> widths;
  for (size_t column = 0; column < columns_.size(); ++column) {
    size_t width = display_width(columns_[column].title);
    for (const auto& row : rows_) width = std::max(width, display_width(row[column]));
    widths.push_back(width);
  }
  std::string text;
  auto add_line = [&](const auto& cell_of) {
    std::string line(indent);
    for (size_t column = 0; column < columns_.size(); ++column) {
      const std::string& cell = cell_of(column);
      const std::string padding(widths[column] - display_width(cell), ' ');
      if (column > 0) line += "  ";
      line += columns_[column].align == Align::right ? padding + cell : cell + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  };
  add_line([&](size_t column) -> const std::string& { return columns_[column].title; });
  for (const auto& row : rows_) add_line([&](size_t column) -> const std::string& { return row[column]; });
  return text;
}

}  // namespace varve::cli
