#include "report/run_timeline.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <map>
#include <optional>
#include <vector>

#include "core/process.h"
#include "core/step_text.h"
#include "report/page.h"
#include "runtime/timeline_log.h"

namespace varve {

namespace {
using Json = nlohmann::ordered_json;

/// Of one line, of one text in it, of a whole log (more than runs write), and of levels that a run names.
constexpr size_t kLineBytesMax = 64_KiB, kTextBytesMax = 4_KiB, kLevelsMax = 64;
constexpr uint64_t kLogBytesMax = 4 * kTimelineBytesMax;
/// Of seconds, since 1970 or of a duration: far beyond any run.
constexpr double kSecondsMax = 1e11;
constexpr uint64_t kBytesMax = uint64_t{1} << 62;

// What a line may say: anything else is as if it said nothing

std::optional<double> seconds_in(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number()) return std::nullopt;
  const auto seconds = found->get<double>();
  if (!std::isfinite(seconds) || seconds < 0 || seconds > kSecondsMax) return std::nullopt;
  return seconds;
}

uint64_t count_in(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number_unsigned()) return 0;
  return std::min(found->get<uint64_t>(), kBytesMax);
}

std::string text_in(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_string()) return {};
  return found->get<std::string>().substr(0, kTextBytesMax);
}

/// As programs are told of steps: a count as an integer, a time as the number that it is.
Json step_number(uint64_t step) {
  const std::optional<double> time = time_of_step(step);
  return time ? Json(*time) : Json(step);
}

/// One line of a log that makes sense.
struct Line {
  Json json;
  std::string event, run;
  double at = 0;
  std::optional<uint64_t> step;
  std::optional<BlockedParts> blocked;
};

std::optional<BlockedParts> blocked_in(const Json& json) {
  const auto found = json.find("blocked");
  if (found == json.end() || !found->is_object()) return std::nullopt;
  BlockedParts parts;
  for (size_t i = 0; i < kBlockedCauses; ++i) {
    const auto cause = static_cast<BlockedCause>(i);
    parts.of(cause) = seconds_in(*found, std::string(blocked_cause_name(cause)).c_str()).value_or(0);
  }
  return parts;
}

std::optional<Line> parse_line(std::string_view text) {
  if (text.size() > kLineBytesMax) return std::nullopt;
  Line line;
  line.json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!line.json.is_object()) return std::nullopt;
  line.event = text_in(line.json, "event");
  line.run = text_in(line.json, "run");
  const std::optional<double> at = seconds_in(line.json, "at");
  if (line.event.empty() || line.run.empty() || !at) return std::nullopt;
  line.at = *at;
  if (line.json.contains("step")) {
    line.step = parse_step(text_in(line.json, "step"));
    if (!line.step) return std::nullopt;
  }
  line.blocked = blocked_in(line.json);
  return line;
}

/// The process of rank 0; nothing of a log that does not say all of it.
std::optional<ProcessIdentity> identity_in(const Json& json) {
  const Result<UniqueId> boot = UniqueId::parse(text_in(json, "boot"));
  const uint64_t number = count_in(json, "process"), start = count_in(json, "start_ticks");
  if (!boot.ok() || number == 0 || number > UINT32_MAX || start == 0) return std::nullopt;
  return ProcessIdentity{*boot, count_in(json, "pid_namespace"), start, static_cast<uint32_t>(number)};
}

/// Whether it ran since this machine was started, and does not any more.
bool has_died_here(const ProcessIdentity& process) {
  const Result<ProcessIdentity> own = ProcessIdentity::own();
  return own.ok() && own->boot == process.boot && liveness(process) == Liveness::dead;
}

Json blocked_json(const BlockedParts& parts) {
  Json json = Json::object();
  for (size_t i = 0; i < kBlockedCauses; ++i) {
    const auto cause = static_cast<BlockedCause>(i);
    json[std::string(blocked_cause_name(cause))] = parts.of(cause);
  }
  return json;
}

void add_parts(BlockedParts& sum, const BlockedParts& more) {
  for (size_t i = 0; i < kBlockedCauses; ++i) sum.seconds[i] += more.seconds[i];
}

/// How much of the time is attributed to a cause that has a name; 1 of none.
double attributed_share(const BlockedParts& parts) {
  const double total = parts.total();
  return total > 0 ? 1 - parts.of(BlockedCause::other) / total : 1;
}

Json optional_seconds(const std::optional<double>& seconds) { return seconds ? Json(*seconds) : Json(nullptr); }

/// One run, as its lines come.
class RunLines {
 public:
  explicit RunLines(std::string run) : run_(std::move(run)) {}

  /// False: nobody knows such an event.
  bool take(const Line& line) {
    if (!take_event(line)) return false;
    first_ = std::min(first_.value_or(line.at), line.at);
    last_ = std::max(last_.value_or(line.at), line.at);
    if (line.blocked) add_parts(blocked_, *line.blocked);
    return true;
  }

  const BlockedParts& blocked() const { return blocked_; }
  const std::optional<ProcessIdentity>& process() const { return identity_; }

  /// `goes_on`: for all that is known; else what has no end in the log was cut off.
  Json facts(bool goes_on) {
    const bool is_cut_off = !ended_ && !goes_on;
    if (is_cut_off) cut_off();
    const char* const state = ended_ ? (why_.empty() ? "ended" : "failed") : is_cut_off ? "cut off" : "open";
    Json checkpoints = Json::array();
    for (const Checkpoint& one : checkpoints_) checkpoints.push_back(facts_of(one, ended_.has_value()));
    return {{"run", run_},
            {"host", host_},
            {"process", process_},
            {"ranks", ranks_},
            {"levels", levels_},
            {"begin", optional_seconds(begin_ ? begin_ : first_)},
            {"end", optional_seconds(ended_)},
            {"last", optional_seconds(last_)},
            {"state", state},
            {"why", why_},
            {"lost_events", lost_},
            {"blocked_seconds", blocked_.total()},
            {"attributed_share", attributed_share(blocked_)},
            {"blocked", blocked_json(blocked_)},
            {"restarts", restarts_},
            {"waits", waits_},
            {"failures", failures_},
            {"checkpoints", std::move(checkpoints)}};
  }

 private:
  struct Arrival {
    std::string level{};
    std::optional<double> begun{}, arrived{}, given_up{};
    uint64_t bytes = 0, failures = 0;
    bool is_under_way = false;
  };
  struct Checkpoint {
    uint64_t step = 0;
    std::optional<double> begin{}, end{};
    BlockedParts blocked{};
    std::string outcome{};  ///< empty: it is on its way
    std::string why{};
    Json work = Json::object();
    std::optional<double> stored{};
    uint64_t bytes = 0, copied_bytes = 0;
    std::vector<Arrival> levels{};
  };

  bool take_event(const Line& line) {
    if (line.event == "open") return take_open(line);
    if (line.event == "restart") return take_restart(line);
    if (line.event == "end") return take_end(line);
    if (line.event == "waited") {
      waits_.push_back({{"begin", optional_seconds(seconds_in(line.json, "begin"))},
                        {"end", line.at},
                        {"blocked", blocked_json(line.blocked.value_or(BlockedParts()))}});
      return true;
    }
    if (line.event == "away" && !line.step) {
      note_failure(line);
      return true;
    }
    if (!line.step) return false;
    if (line.event == "making") {
      begun_checkpoint(*line.step).begin = seconds_in(line.json, "begin");
      return true;
    }
    if (line.event == "checkpoint" || line.event == "skipped") return take_checkpoint(line);
    if (line.event == "stored" || line.event == "failed") return take_outcome(line);
    return take_level(line);
  }

  bool take_open(const Line& line) {
    begin_ = line.at;
    host_ = text_in(line.json, "host");
    process_ = count_in(line.json, "process");
    identity_ = identity_in(line.json);
    ranks_ = count_in(line.json, "ranks");
    const auto levels = line.json.find("levels");
    if (levels == line.json.end() || !levels->is_array()) return true;
    for (const Json& level : *levels) {
      if (levels_.size() < kLevelsMax && level.is_string())
        levels_.push_back(level.get<std::string>().substr(0, kTextBytesMax));
    }
    return true;
  }

  bool take_restart(const Line& line) {
    const std::string why = text_in(line.json, "why");
    restarts_.push_back({{"at", line.at},
                         {"step", line.step ? step_number(*line.step) : Json(nullptr)},
                         {"from", text_in(line.json, "from")},
                         {"passed_over", count_in(line.json, "passed_over")},
                         {"seconds", line.blocked ? line.blocked->of(BlockedCause::restart) : 0},
                         {"why", why}});
    if (!why.empty()) note_failure(line);
    return true;
  }

  bool take_end(const Line& line) {
    ended_ = line.at;
    why_ = text_in(line.json, "why");
    lost_ = count_in(line.json, "lost");
    return true;
  }

  /// The checkpoint of this step that has no end yet, or else a new one.
  Checkpoint& begun_checkpoint(uint64_t step) {
    const auto known = newest_of_.find(step);
    if (known != newest_of_.end()) {
      Checkpoint& one = checkpoints_[known->second];
      if (one.begin && !one.end && one.outcome.empty()) return one;
    }
    newest_of_[step] = checkpoints_.size();
    checkpoints_.push_back({.step = step});
    return checkpoints_.back();
  }

  bool take_checkpoint(const Line& line) {
    Checkpoint& one = begun_checkpoint(*line.step);
    one.begin = seconds_in(line.json, "begin");
    one.end = line.at;
    one.blocked = line.blocked.value_or(BlockedParts());
    one.bytes = count_in(line.json, "bytes");
    one.copied_bytes = count_in(line.json, "copied_bytes");
    one.why = text_in(line.json, "why");
    if (line.event == "skipped") one.outcome = "skipped";
    if (line.json.contains("stays_in_memory")) one.outcome = "in memory";
    if (!one.why.empty()) {
      one.outcome = "failed";
      note_failure(line);
    }
    return true;
  }

  /// The newest checkpoint of a step: a run that goes back makes a step again. One of which the begin is lost is made
  /// up.
  Checkpoint& checkpoint_of(uint64_t step) {
    const auto [found, is_new] = newest_of_.try_emplace(step, checkpoints_.size());
    if (is_new) checkpoints_.push_back({.step = step});
    return checkpoints_[found->second];
  }

  bool take_outcome(const Line& line) {
    Checkpoint& one = checkpoint_of(*line.step);
    one.outcome = line.event;
    if (!one.begin) one.begin = seconds_in(line.json, "begin");
    if (line.event == "stored") one.stored = line.at;
    if (line.event == "failed") {
      one.why = text_in(line.json, "why");
      note_failure(line);
    }
    one.work["raw_bytes"] = count_in(line.json, "bytes");
    one.work["stored_bytes"] = count_in(line.json, "stored_bytes");
    for (const char* key : {"work_begin", "work_seconds", "processor_seconds", "read_seconds", "score_seconds",
                            "encode_seconds", "write_seconds", "sync_seconds", "starved_seconds"})
      one.work[key] = seconds_in(line.json, key).value_or(0);
    return true;
  }

  bool take_level(const Line& line) {
    const bool is_known =
        line.event == "begun" || line.event == "arrived" || line.event == "away" || line.event == "given_up";
    if (!is_known) return false;
    Arrival& level = arrival_of(checkpoint_of(*line.step), text_in(line.json, "level"));
    level.is_under_way = line.event == "begun";
    if (line.event == "begun") {
      if (!level.begun) level.begun = line.at;
    } else if (line.event == "arrived") {
      level.arrived = line.at;
      level.bytes = count_in(line.json, "bytes");
    } else if (line.event == "away") {
      ++level.failures;
      note_failure(line);
    } else {
      level.given_up = line.at;
      note_failure(line);
    }
    return true;
  }

  static Arrival& arrival_of(Checkpoint& one, const std::string& level) {
    const auto found =
        std::find_if(one.levels.begin(), one.levels.end(), [&](const Arrival& there) { return there.level == level; });
    if (found != one.levels.end()) return *found;
    if (one.levels.size() == kLevelsMax) return one.levels.back();
    one.levels.push_back({.level = level});
    return one.levels.back();
  }

  void note_failure(const Line& line) {
    failures_.push_back({{"at", line.at},
                         {"what", line.event},
                         {"step", line.step ? step_number(*line.step) : Json(nullptr)},
                         {"level", text_in(line.json, "level")},
                         {"why", text_in(line.json, "why")}});
  }

  /// The run was killed: what was under way has failed, as far as the log says.
  void cut_off() {
    const auto fail = [this](const Checkpoint& one, const std::string& level, const std::string& why) {
      failures_.push_back({{"at", optional_seconds(last_)},
                           {"what", "cut off"},
                           {"step", step_number(one.step)},
                           {"level", level},
                           {"why", why}});
    };
    for (Checkpoint& one : checkpoints_) {
      if (one.outcome.empty() && one.begin) {
        one.outcome = "cut off";
        one.why = one.end ? "the run was killed before it was in the store" : "the run was killed while it was made";
        fail(one, "", one.why);
      }
      for (const Arrival& level : one.levels) {
        if (level.is_under_way) fail(one, level.level, "the run was killed while it was on its way there");
      }
    }
  }

  static Json facts_of(const Checkpoint& one, bool run_is_over) {
    Json levels = Json::array();
    for (const Arrival& level : one.levels)
      levels.push_back({{"level", level.level},
                        {"begun", optional_seconds(level.begun)},
                        {"arrived", optional_seconds(level.arrived)},
                        {"given_up", optional_seconds(level.given_up)},
                        {"failures", level.failures},
                        {"sent_bytes", level.bytes}});
    // Of one that the log does not have the begin of, an earlier run has made it.
    const std::string under_way = !one.begin ? "made before" : run_is_over ? "not known" : "on its way";
    Json facts{{"step", step_number(one.step)},
               {"outcome", one.outcome.empty() ? under_way : one.outcome},
               {"begin", optional_seconds(one.begin)},
               {"end", optional_seconds(one.end)},
               {"stored", optional_seconds(one.stored)},
               {"bytes", one.bytes},
               {"copied_bytes", one.copied_bytes},
               {"blocked_seconds", one.blocked.total()},
               {"blocked", blocked_json(one.blocked)},
               {"levels", std::move(levels)},
               {"why", one.why}};
    facts.update(one.work);
    return facts;
  }

  const std::string run_;
  std::optional<double> begin_, first_, last_, ended_;
  std::string host_, why_;
  uint64_t process_ = 0, ranks_ = 0, lost_ = 0;
  std::optional<ProcessIdentity> identity_;
  std::vector<std::string> levels_;
  BlockedParts blocked_;
  Json restarts_ = Json::array(), waits_ = Json::array(), failures_ = Json::array();
  std::vector<Checkpoint> checkpoints_;
  std::map<uint64_t, size_t> newest_of_;  ///< by step
};

/// None: there is no such file. `skipped` counts what is left out of one that is too long.
Result<std::optional<std::string>> read_log(const std::string& path, uint64_t& skipped) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid() && errno == ENOENT) return std::optional<std::string>();
  if (!file.valid()) return Status::from_errno(errno, "open", path);
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) return Status::from_errno(errno, "look at", path);
  if (!S_ISREG(facts.st_mode)) return Status::invalid_argument("the log of a run is a plain file", path);
  const auto size = static_cast<uint64_t>(facts.st_size);
  const uint64_t begin = size > kLogBytesMax ? size - kLogBytesMax : 0;
  if (begin > 0) ++skipped;
  std::string text(size - begin, '\0');
  size_t got = 0;
  while (got < text.size()) {
    const ssize_t now = ::pread(file.get(), text.data() + got, text.size() - got, static_cast<off_t>(begin + got));
    if (now < 0 && errno == EINTR) continue;
    if (now < 0) return Status::from_errno(errno, "read", path);
    if (now == 0) break;
    got += static_cast<size_t>(now);
  }
  text.resize(got);
  return std::optional(std::move(text));
}
}  // namespace

Json timeline_of_text(std::string_view text, const std::string& job, uint64_t skipped) {
  std::vector<RunLines> runs;
  std::map<std::string, size_t> known;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view one = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (one.empty()) continue;
    const std::optional<Line> line = parse_line(one);
    if (!line) {
      ++skipped;
      continue;
    }
    const auto [run, is_new] = known.try_emplace(line->run, runs.size());
    if (is_new) runs.emplace_back(line->run);
    if (!runs[run->second].take(*line)) ++skipped;
  }
  BlockedParts blocked;
  Json told = Json::array();
  for (size_t i = 0; i < runs.size(); ++i) {
    add_parts(blocked, runs[i].blocked());
    // Two runs of a job are not at work at a time: one that was followed by another is over.
    const std::optional<ProcessIdentity>& process = runs[i].process();
    told.push_back(runs[i].facts(i + 1 == runs.size() && !(process && has_died_here(*process))));
  }
  return {{"job", job},
          {"skipped_lines", skipped},
          {"blocked_seconds", blocked.total()},
          {"attributed_share", attributed_share(blocked)},
          {"blocked", blocked_json(blocked)},
          {"runs", std::move(told)}};
}

Result<Json> read_timeline(const std::string& path, const std::string& job) {
  uint64_t skipped = 0;
  VARVE_ASSIGN(const std::optional<std::string> older, read_log(older_timeline_path(path), skipped));
  VARVE_ASSIGN(const std::optional<std::string> newer, read_log(path, skipped));
  if (!older && !newer) return Status::not_found("there is no log of such a run", path);
  std::string text = older.value_or("");
  if (!text.empty() && text.back() != '\n') text += '\n';
  return timeline_of_text(text + newer.value_or(""), job, skipped);
}

std::string timeline_page(const Json& timeline, const std::string& text) {
  return fill_page(timeline_template(), [&](std::string_view name) -> std::string {
    if (name == "style") return std::string(page_style());
    if (name == "script") return std::string(timeline_script());
    if (name == "data") return json_in_script(timeline);
    return name == "text" ? escape_html(text) : "";
  });
}

}  // namespace varve
