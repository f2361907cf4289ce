#include "cli/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>

#include "cli/remedies.h"

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
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S %Z", &local)};
}

std::string format_shape(const std::vector<uint64_t>& shape) {
  return shape.empty() ? "scalar" : fmt::format("{}", fmt::join(shape, "x"));
}

std::string format_count(uint64_t count, std::string_view singular, std::string_view plural) {
  return fmt::format("{} {}", count, count == 1 ? singular : plural);
}

std::string escape_text(std::string_view text) { return escape(text, /*inside_quotes=*/false); }

std::string escape_lines(std::string_view text) {
  std::string escaped;
  for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    escaped += escape_text(text.substr(0, end)) + '\n';
    text.remove_prefix(end + 1);
  }
  return escaped + escape_text(text);
}

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

Result<double> parse_share(const std::string& text) {
  const bool percent = text.ends_with('%');
  const std::string_view number = std::string_view(text).substr(0, text.size() - (percent ? 1 : 0));
  double share = -1;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), share);
  if (percent) share /= 100;
  if (error == std::errc() && end == number.data() + number.size() && share >= 0 && share <= 1) return share;
  return Status::invalid_argument("a share is from 0 to 1, or from 0% to 100%", text);
}

std::string pin_and_tags_of(const SetRemarks& remarks) {
  std::string words = remarks.pinned ? "pinned" : "";
  for (const std::string& tag : remarks.tags) words += (words.empty() ? "" : ", ") + tag;
  return words;
}

std::string words_of(const SetRemarks& remarks) {
  const std::string words = pin_and_tags_of(remarks);
  if (!remarks.has_note) return words;
  return words.empty() ? "note" : words + ", note";
}

std::string line_of(const LevelCopy& copy) {
  return fmt::format("{} copied to {}: {} sent\n", quote_name(copy.name.to_string()), quote_name(copy.level),
                     format_size(copy.sent_bytes));
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

namespace {
/// Files of one damage that are named to a person; --json has more.
constexpr size_t kFilesShownMax = 10;
}  // namespace

void print_damage(Session& session, const Damage& damage) {
  session.print(std::string(damage.disposable ? "disposable: " : "damage: ") + escape_text(damage.what.message()) +
                ": " + quote_name(damage.what.subject()) + "\n");
  if (const std::string hint = hint_of(damage.what); !hint.empty())
    session.print("  hint: " + escape_text(hint) + "\n");
  if (damage.affected_sets.empty()) {
    session.print("  affects no set\n");
    return;
  }
  for (const std::string& set : damage.affected_sets) session.print("  affects " + quote_name(set) + "\n");
  const size_t shown = std::min(damage.affected_files.size(), kFilesShownMax);
  for (size_t i = 0; i < shown; ++i) session.print("    " + quote_name(damage.affected_files[i]) + "\n");
  if (damage.affected_files.size() > shown) session.print("    and more\n");
}

Json damages_json(const VerifyReport& report) {
  Json damages = Json::array();
  for (const Damage& damage : report.damages) {
    damages.push_back({{"what", to_json(damage.what)},
                       {"affected_sets", damage.affected_sets},
                       {"affected_files", damage.affected_files},
                       {"disposable", damage.disposable}});
  }
  return damages;
}

}  // namespace varve::cli
