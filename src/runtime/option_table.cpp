#include "runtime/option_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>

#include "core/nearest.h"
#include "core/quantity.h"
#include "format/image.h"
#include "format/set_record.h"

namespace varve {

namespace {
constexpr uint64_t kMemoryBytesMin = 32_MiB;
/// Longer than any run; keeps sums of seconds harmless.
constexpr double kSecondsMax = 1e10;

using Said = std::optional<std::string>;

// What the program says, as text.
template <auto kMember>
Said said(const SessionOptions& code) {
  const auto& value = code.*kMember;
  if (!value) return std::nullopt;
  using Value = std::decay_t<decltype(*value)>;
  if constexpr (std::is_same_v<Value, std::string>) {
    return *value;
  } else if constexpr (std::is_same_v<Value, WhenBusy>) {
    switch (*value) {
      case WhenBusy::wait: return "wait";
      case WhenBusy::skip: return "skip";
      case WhenBusy::two_slots: return "two_slots";
      case WhenBusy::automatic: return "automatic";
    }
    return "unknown";
  } else {
    return fmt::format("{}", *value);
  }
}

// What texts mean.
Status take_path(std::string& into, const std::string& text) {
  if (text.empty()) return Status::invalid_argument("a path is wanted", text);
  into = text;
  return {};
}

Status take_count(uint64_t& into, const std::string& text, uint64_t max = UINT64_MAX) {
  VARVE_ASSIGN(const uint64_t count, parse_number(text, max));
  if (count == 0) return Status::invalid_argument("at least 1 is wanted", text);
  into = count;
  return {};
}

Status take_optional_count(std::optional<uint64_t>& into, const std::string& text, uint64_t max = UINT64_MAX) {
  into.reset();
  if (text == "none") return {};
  uint64_t count = 0;
  VARVE_TRY(take_count(count, text, max));
  into = count;
  return {};
}

Status take_seconds(double& into, const std::string& text) {
  VARVE_ASSIGN(const double seconds, parse_duration(text));
  if (seconds <= 0 || seconds > kSecondsMax) return Status::invalid_argument("a duration above 0 is wanted", text);
  into = seconds;
  return {};
}

Status take_optional_seconds(std::optional<double>& into, const std::string& text) {
  into.reset();
  if (text == "none") return {};
  double seconds = 0;
  VARVE_TRY(take_seconds(seconds, text));
  into = seconds;
  return {};
}

Status take_yes_no(bool& into, const std::string& text) {
  for (const std::string_view yes : {"true", "yes", "on", "1"}) {
    if (text != yes) continue;
    into = true;
    return {};
  }
  for (const std::string_view no : {"false", "no", "off", "0"}) {
    if (text != no) continue;
    into = false;
    return {};
  }
  return Status::invalid_argument("true or false is wanted", text);
}

Status take_job(Settings& settings, const std::string& text) {
  VARVE_TRY(check_job_name(text));
  settings.job = text;
  return {};
}

Status take_group(Settings& settings, const std::string& text) {
  using Kind = GroupRule::Kind;
  for (const auto& [name, kind] : {std::pair("rank", Kind::rank), {"socket", Kind::socket}, {"node", Kind::node}}) {
    if (text != name) continue;
    settings.group = GroupRule{.kind = kind};
    return {};
  }
  uint64_t count = 0;
  if (!take_count(count, text, INT32_MAX).ok())
    return Status::invalid_argument("a group is rank, socket, node or a number of ranks", text);
  settings.group = GroupRule{.kind = Kind::count, .count = static_cast<uint32_t>(count)};
  return {};
}

Status take_effort(Settings& settings, const std::string& text) {
  settings.saving.adapts_effort = text == "auto";
  if (settings.saving.adapts_effort) {
    settings.saving.codec = {};
    return {};
  }
  const Result<CodecPolicy> codec = CodecPolicy::of_effort(text);
  if (!codec.ok()) return Status::invalid_argument("an effort is auto, fast, balanced or best", text);
  settings.saving.codec = *codec;
  return {};
}

Status take_codec(Settings& settings, const std::string& text) {
  if (text == "none") return {};  // the effort's stays
  VARVE_ASSIGN(settings.saving.codec, CodecPolicy::parse(text));
  settings.saving.adapts_effort = false;
  return {};
}

Status take_scheme(Settings& settings, const std::string& text) {
  VARVE_ASSIGN(settings.saving.scheme, parse_scheme(text));
  return {};
}

Status take_memory(Settings& settings, const std::string& text) {
  VARVE_ASSIGN(settings.saving.memory_bytes, parse_size(text));
  if (settings.saving.memory_bytes < kMemoryBytesMin) return Status::invalid_argument("at least 32MiB is wanted", text);
  return {};
}

Status take_when_busy(Settings& settings, const std::string& text) {
  for (const auto& [name, policy] : {std::pair("automatic", WhenBusy::automatic),
                                     {"wait", WhenBusy::wait},
                                     {"skip", WhenBusy::skip},
                                     {"two_slots", WhenBusy::two_slots}}) {
    if (text != name) continue;
    settings.snapshots.when_busy = policy;
    return {};
  }
  return Status::invalid_argument("automatic, wait, skip or two_slots is wanted", text);
}

Status take_write_rate(Settings& settings, const std::string& text) {
  settings.write_bytes_per_second.reset();
  if (text == "none") return {};
  VARVE_ASSIGN(settings.write_bytes_per_second, parse_rate(text));
  return {};
}

/// A place that open_location() takes. The memory before it is a level, too.
Status take_store(Settings& settings, const std::string& text) {
  VARVE_TRY(take_path(settings.store, text));
  VARVE_ASSIGN(LevelSpec store, level_at(text));
  VARVE_ASSIGN(LevelSpec memory, parse_level("memory"));
  settings.levels = {std::move(memory), std::move(store)};
  return {};
}

Status take_levels(Settings& settings, const std::string& text) {
  VARVE_ASSIGN(settings.levels, parse_levels(text));
  return {};
}

Status take_key_file(Settings& settings, const std::string& text) {
  settings.reach.key_file.clear();
  return text == "none" ? Status() : take_path(settings.reach.key_file, text);
}

Status take_s3_endpoint(Settings& settings, const std::string& text) {
  settings.reach.s3_endpoint = text == "none" ? "" : text;
  return {};
}

Status take_stop_file(Settings& settings, const std::string& text) {
  settings.stop.file.reset();
  if (text == "none") return {};
  std::string path;
  VARVE_TRY(take_path(path, text));
  settings.stop.file = path;
  return {};
}

Status take_metrics_file(Settings& settings, const std::string& text) {
  settings.metrics_file.clear();
  return text == "none" ? Status() : take_path(settings.metrics_file, text);
}

/// "particles=evenly; log=ignore".
Status take_redistribution(Settings& settings, const std::string& text) {
  settings.redistribution.clear();
  if (text == "none") return {};
  std::string_view left = text;
  for (bool more = true; more;) {
    const size_t end = left.find(';');
    const std::string_view one = trimmed(left.substr(0, end));
    left.remove_prefix(end != std::string_view::npos ? end + 1 : left.size());
    more = !trimmed(left).empty();  // behind the last one there may be a semicolon, too
    const size_t equals = one.rfind('=');
    const std::string_view how =
        equals == std::string_view::npos ? std::string_view() : trimmed(one.substr(equals + 1));
    constexpr std::array words = {std::pair("same", Redistribution::same), std::pair("evenly", Redistribution::evenly),
                                  std::pair("ignore", Redistribution::ignore)};
    const auto word = std::find_if(words.begin(), words.end(), [&](const auto& each) { return each.first == how; });
    if (word == words.end()) {
      return Status::invalid_argument("NAME=same, NAME=evenly or NAME=ignore is wanted, of each variable",
                                      std::string(one));
    }
    const std::string name(trimmed(one.substr(0, equals)));
    VARVE_TRY(check_variable_name(name));
    if (!settings.redistribution.emplace(name, word->second).second)
      return Status::invalid_argument("it is there twice", fmt::format("variable '{}'", name));
  }
  return {};
}

Status take_end_time(Settings& settings, const std::string& text) {
  std::optional<uint64_t> seconds;
  VARVE_TRY(take_optional_count(seconds, text, static_cast<uint64_t>(kSecondsMax)));
  settings.stop.end_time.reset();
  if (seconds) settings.stop.end_time = static_cast<double>(*seconds);
  return {};
}

Status take_note_file(Settings& settings, const std::string& text) {
  settings.note_file.clear();
  return text == "none" ? Status() : take_path(settings.note_file, text);
}

/// Of what whoever starts the program knows, and the program cannot: it has no member for it.
Said never_said(const SessionOptions&) { return std::nullopt; }

using O = SessionOptions;
using S = Settings;
using T = const std::string&;
using enum OptionForm;

const std::array kRules = {
    OptionRule{"store", text, "varve-store", said<&O::store>, take_store},
    OptionRule{"levels", list, "none", said<&O::levels>, take_levels},
    OptionRule{"key_file", text, "none", said<&O::key_file>, take_key_file},
    OptionRule{"s3_endpoint", text, "none", said<&O::s3_endpoint>, take_s3_endpoint},
    OptionRule{"job", text, "", said<&O::job>, take_job},
    OptionRule{"group", word, "node", said<&O::group>, take_group},
    // The codec after the effort, which it replaces.
    OptionRule{"effort", word, "auto", said<&O::effort>, take_effort},
    OptionRule{"codec", word, "none", said<&O::codec>, take_codec},
    OptionRule{"scheme", word, "aware", said<&O::scheme>, take_scheme},
    OptionRule{"threads", number, "none", said<&O::threads>,
               [](S& s, T t) { return take_optional_count(s.saving.threads, t, 1024); }},
    OptionRule{"memory_bytes", size, "256MiB", said<&O::memory_bytes>, take_memory},
    OptionRule{"every_steps", number, "none", said<&O::every_steps>,
               [](S& s, T t) { return take_optional_count(s.cadence.every_steps, t); }},
    OptionRule{"every_seconds", duration, "none", said<&O::every_seconds>,
               [](S& s, T t) { return take_optional_seconds(s.cadence.every_seconds, t); }},
    OptionRule{"mean_time_between_failures", duration, "24h", said<&O::mean_time_between_failures>,
               [](S& s, T t) { return take_seconds(s.cadence.mean_time_between_failures, t); }},
    OptionRule{"when_busy", word, "automatic", said<&O::when_busy>, take_when_busy},
    OptionRule{"wait_limit", duration, "30min", said<&O::wait_limit>,
               [](S& s, T t) { return take_seconds(s.snapshots.wait_limit, t); }},
    OptionRule{"keep_last", number, "none", said<&O::keep_last>,
               [](S& s, T t) { return take_optional_count(s.keep_last, t); }},
    OptionRule{"write_bytes_per_second", rate, "none", said<&O::write_bytes_per_second>, take_write_rate},
    OptionRule{"stop_after_seconds", duration, "none", said<&O::stop_after_seconds>,
               [](S& s, T t) { return take_optional_seconds(s.stop.after_seconds, t); }},
    OptionRule{"stop_file", text, "none", said<&O::stop_file>, take_stop_file},
    OptionRule{"stop_on_signals", yes_no, "true", said<&O::stop_on_signals>,
               [](S& s, T t) { return take_yes_no(s.stop.on_signals, t); }},
    OptionRule{"grace", duration, "none", never_said, [](S& s, T t) { return take_optional_seconds(s.stop.grace, t); }},
    OptionRule{"end_time", number, "none", never_said, take_end_time},
    OptionRule{"note_file", text, "none", never_said, take_note_file},
    OptionRule{"low_priority", yes_no, "true", said<&O::low_priority>,
               [](S& s, T t) { return take_yes_no(s.saving.low_priority, t); }},
    OptionRule{"shared_memory", text, "/dev/shm", said<&O::shared_memory>,
               [](S& s, T t) { return take_path(s.snapshots.shared_memory, t); }},
    OptionRule{"snapshot_folder", text, "auto", said<&O::snapshot_folder>,
               [](S& s, T t) { return take_path(s.snapshots.spill_folder, t); }},
    OptionRule{"take_over", yes_no, "false", said<&O::take_over>,
               [](S& s, T t) { return take_yes_no(s.take_over, t); }},
    OptionRule{"variables_may_change", yes_no, "false", said<&O::variables_may_change>,
               [](S& s, T t) { return take_yes_no(s.variables_may_change, t); }},
    OptionRule{"redistribution", list, "none", never_said, take_redistribution},
    OptionRule{"print_warnings", yes_no, "true", said<&O::print_warnings>,
               [](S& s, T t) { return take_yes_no(s.print_warnings, t); }},
    OptionRule{"metrics_file", text, "none", said<&O::metrics_file>, take_metrics_file},
    OptionRule{"timeline", text, "auto", said<&O::timeline>, [](S& s, T t) { return take_path(s.timeline, t); }},
};
}  // namespace

std::span<const OptionRule> option_rules() { return kRules; }

const OptionRule* find_option(std::string_view name) {
  const auto found =
      std::find_if(kRules.begin(), kRules.end(), [&](const OptionRule& rule) { return rule.name == name; });
  return found == kRules.end() ? nullptr : &*found;
}

std::string_view nearest_option(std::string_view name) {
  std::vector<std::string_view> names;
  for (const OptionRule& rule : kRules) names.push_back(rule.name);
  return nearest_word(name, names);
}

std::string environment_name(std::string_view option) {
  std::string name = "VARVE_";
  for (const char letter : option) name += static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  return name;
}

}  // namespace varve
