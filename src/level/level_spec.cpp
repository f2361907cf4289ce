#include "level/level_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/quantity.h"
#include "service/location.h"

namespace varve {

std::span<const LevelKind* const> level_kinds() {
  static constexpr const LevelKind* kAll[] = {&kMemoryLevel, &kNodeLevel, &kRedundancyLevel, &kFolderLevel,
                                              &kTcpLevel,    &kUnixLevel, &kBucketLevel};
  return kAll;
}

namespace {
using Position = LevelKind::Position;

constexpr std::string_view kBlanks = " \t\r\n";
constexpr double kRateMax = 1e18;

Status bad_level(std::string_view level, std::string what, std::string hint = {}) {
  return Status::invalid_argument(fmt::format("level: {}", what), std::string(level), std::move(hint));
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (text = trimmed(text); !text.empty(); text = trimmed(text)) {
    const size_t end = std::min(text.find_first_of(kBlanks), text.size());
    words.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return words;
}

bool is_plain(char letter) {
  const auto code = static_cast<unsigned char>(letter);
  return code > 0x20 && code != 0x7F && letter != '%' && letter != ';';
}

int hex_digit(char letter) {
  if (letter >= '0' && letter <= '9') return letter - '0';
  if (letter >= 'A' && letter <= 'F') return letter - 'A' + 10;
  if (letter >= 'a' && letter <= 'f') return letter - 'a' + 10;
  return -1;
}

/// Reverse of escape_place(); none for "%" without two digits behind it, and for %00, which no path can have.
std::optional<std::string> unescaped(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      plain += text[i];
      continue;
    }
    const int high = i + 1 < text.size() ? hex_digit(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
    if (high < 0 || low < 0 || high + low == 0) return std::nullopt;
    plain += static_cast<char>(16 * high + low);
    i += 2;
  }
  return plain;
}

/// None: there is no such kind.
const LevelKind* kind_of(std::string_view word) {
  if (word.starts_with("/")) return &kFolderLevel;
  for (const LevelKind* const kind : level_kinds()) {
    for (const std::string_view begin : kind->words) {
      const bool takes = kind->take == nullptr ? word == begin : word.starts_with(begin);
      if (!begin.empty() && takes) return kind;
    }
  }
  return nullptr;
}

std::string all_forms() {
  std::string forms;
  for (const LevelKind* const kind : level_kinds()) forms += fmt::format("{}, ", kind->form);
  return forms + "or an absolute path";
}

Status take_rate(std::optional<uint64_t>& into, std::string_view text) {
  VARVE_ASSIGN(const double rate, parse_rate(text));
  if (rate < 1 || rate > kRateMax) return Status::invalid_argument("not a bandwidth", std::string(text));
  into = static_cast<uint64_t>(std::llround(rate));
  return {};
}

Status take_option(LevelSpec& level, std::string_view word) {
  const size_t equals = std::min(word.find('='), word.size());
  const std::string_view name = word.substr(0, equals);
  const std::string_view value = word.substr(std::min(equals + 1, word.size()));
  if (!level.kind->takes_options)
    return Status::invalid_argument(fmt::format("{} takes no options", level.name()), std::string(word));
  if (name == "every" || name == "keep" || name == "backlog") {
    VARVE_ASSIGN(const uint64_t count, parse_number(value));
    if (count == 0) return Status::invalid_argument("at least 1 is wanted", std::string(word));
    if (name == "every") level.every = count;
    if (name == "keep") level.keep = count;
    if (name == "backlog") level.backlog = count;
    return {};
  }
  if (name != "bandwidth") {
    return Status::invalid_argument("no such option", std::string(word),
                                    "every=K, keep=N, backlog=N or bandwidth=RATE");
  }
  if (!level.kind->takes_bandwidth) return Status::invalid_argument("it is written as fast as its nodes can");
  return take_rate(level.bytes_per_second, value);
}

Status with_level(const Status& what, std::string_view level) {
  std::string subject(what.subject());
  const std::string message = subject.empty() || subject == level ? std::string(what.message())
                                                                  : fmt::format("{}: {}", what.message(), subject);
  return bad_level(level, message, std::string(what.hint()));
}

Status check_neighbours(const LevelSpec* before, const LevelSpec& level) {
  const Position own = level.kind->position;
  const bool first = before == nullptr;
  const bool fits = own == Position::farther || (own == Position::first && first) ||
                    (own == Position::of_node && (first || before->kind->position < own)) ||
                    (own == Position::behind_node && !first && before->kind->position == Position::of_node);
  return fits ? Status() : bad_level(level.name(), std::string(level.kind->position_rule));
}

std::string rate_text(uint64_t rate) {
  const std::pair<uint64_t, const char*> units[] = {
      {1'000'000'000'000, "TB/s"}, {1'000'000'000, "GB/s"}, {1'000'000, "MB/s"}, {1000, "kB/s"}};
  for (const auto& [factor, unit] : units) {
    if (rate % factor == 0) return fmt::format("{}{}", rate / factor, unit);
  }
  return fmt::format("{}B/s", rate);
}

/// A place with what would end it in a level's text written as %XX.
std::string escape_place(std::string_view place) {
  std::string text;
  for (const char letter : place) {
    if (is_plain(letter)) {
      text += letter;
    } else {
      text += fmt::format("%{:02X}", static_cast<unsigned char>(letter));
    }
  }
  return text;
}
}  // namespace

Status take_place(LevelSpec& level, std::string_view word) {
  std::string_view place = word;
  if (place.starts_with(level.kind->words.front())) place.remove_prefix(level.kind->words.front().size());
  std::optional<std::string> plain = unescaped(place);
  if (!plain) return Status::invalid_argument("% is followed by two hexadecimal digits, or written %25");
  if (plain->empty()) return Status::invalid_argument("it says no place");
  level.place = *std::move(plain);
  return {};
}

std::string name_with_place(const LevelSpec& level) { return std::string(level.kind->words.front()) + level.place; }

std::string LevelSpec::to_string() const {
  LevelSpec escaped = *this;
  escaped.place = escape_place(place);
  std::string text = escaped.name();
  if (every != 1) text += fmt::format(" every={}", every);
  if (keep) text += fmt::format(" keep={}", *keep);
  if (bytes_per_second) text += fmt::format(" bandwidth={}", rate_text(*bytes_per_second));
  if (backlog) text += fmt::format(" backlog={}", *backlog);
  return text;
}

Result<LevelSpec> parse_level(std::string_view text) {
  const std::vector<std::string_view> words = words_of(text);
  if (words.empty()) return Status::invalid_argument("a level is empty");
  LevelSpec level;
  const LevelKind* const kind = kind_of(words.front());
  if (kind == nullptr) {
    return with_level(Status::invalid_argument("no such level", std::string(words.front()), all_forms()),
                      trimmed(text));
  }
  level.kind = kind;
  const Status named = kind->take == nullptr ? Status() : kind->take(level, words.front());
  if (!named.ok()) return with_level(named, trimmed(text));
  std::vector<std::string_view> seen;
  for (size_t i = 1; i < words.size(); ++i) {
    Status taken = take_option(level, words[i]);
    const std::string_view option = words[i].substr(0, words[i].find('='));
    if (std::find(seen.begin(), seen.end(), option) != seen.end())
      taken = Status::invalid_argument("said twice", std::string(option));
    seen.push_back(option);
    if (!taken.ok()) return with_level(taken, trimmed(text));
  }
  return level;
}

Result<LevelSpec> level_at(std::string_view location) {
  VARVE_ASSIGN(const Location place, Location::parse(location));
  if (!place.is_folder()) return parse_level(escape_place(location));
  LevelSpec folder;
  folder.place = place.folder;
  return folder;
}

Result<std::vector<LevelSpec>> parse_levels(std::string_view text) {
  const std::string_view whole = trimmed(text);
  std::vector<LevelSpec> levels;
  for (;;) {
    const size_t end = text.find(';');
    VARVE_ASSIGN(LevelSpec level, parse_level(text.substr(0, end)));
    VARVE_TRY(check_neighbours(levels.empty() ? nullptr : &levels.back(), level));
    for (const LevelSpec& other : levels) {
      if (other.name() == level.name()) return bad_level(level.name(), "it is there twice");
    }
    levels.push_back(std::move(level));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  const auto nearest =
      std::find_if(levels.begin(), levels.end(), [](const LevelSpec& level) { return level.holds_sets(); });
  if (nearest == levels.end()) {
    return Status::invalid_argument("no level holds checkpoints for good", std::string(whole),
                                    "add a directory or a server, such as dir:varve-store");
  }
  for (auto level = levels.begin(); level != levels.end(); ++level) {
    if (level->backlog && (level <= nearest || !level->holds_sets()))
      return bad_level(level->name(), "backlog= is for the levels behind the nearest store, which keeps what waits");
  }
  return levels;
}

std::string to_string(const std::vector<LevelSpec>& levels) {
  std::string text;
  for (const LevelSpec& level : levels) text += (text.empty() ? "" : "; ") + level.to_string();
  return text;
}

LevelSchedule::LevelSchedule(const std::vector<LevelSpec>& levels) {
  const auto nearest =
      std::find_if(levels.begin(), levels.end(), [](const LevelSpec& level) { return level.holds_sets(); });
  if (nearest != levels.end()) save_every_ = nearest->every;
}

LevelDuty LevelSchedule::next(bool must_last, bool everywhere) {
  ++checkpoints_;
  LevelDuty duty;
  duty.save = must_last || everywhere || checkpoints_ % save_every_ == 0;
  duty.everywhere = everywhere;
  duty.number = next_number_;
  if (duty.save) ++next_number_;
  return duty;
}

}  // namespace varve
