#include "cli/top_sources.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>

#include "cli/text.h"
#include "core/file_system.h"
#include "core/process.h"
#include "core/state_folder.h"
#include "core/sync.h"
#include "monitor/metrics_text.h"
#include "runtime/live_file.h"
#include "watch/watch_status.h"
#ifdef VARVE_HAVE_S3
#include "s3/http.h"
#endif

namespace varve::cli {

namespace {
constexpr size_t kTellingBytesMax = 16_MiB;
/// A run that has not said anything for so long may have been killed where nobody could see it.
constexpr double kSilentSeconds = 60;

/// A file that others write: neither waited for, nor read without end.
Result<std::string> read_telling(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return Status::from_errno(errno, "open", path);
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) return Status::from_errno(errno, "look at", path);
  if (!S_ISREG(facts.st_mode)) return Status::invalid_argument("a plain file or a folder is wanted", path);
  std::string text(std::min(static_cast<size_t>(facts.st_size), kTellingBytesMax), '\0');
  size_t got = 0;
  while (got < text.size()) {
    const ssize_t now = ::read(file.get(), text.data() + got, text.size() - got);
    if (now < 0 && errno == EINTR) continue;
    if (now < 0) return Status::from_errno(errno, "read", path);
    if (now == 0) break;
    got += static_cast<size_t>(now);
  }
  text.resize(got);
  return text;
}

Result<std::string> fetch_telling(const std::string& url) {
#ifdef VARVE_HAVE_S3
  const size_t host = url.find("://") + 3, path = std::min(url.find('/', host), url.size());
  CurlOptions patience;
  patience.connect_seconds = 2;
  patience.stall_seconds = 5;
  VARVE_ASSIGN(const std::unique_ptr<HttpTransport> transport, make_curl_transport(patience));
  HttpRequest request;
  request.origin = url.substr(0, path);
  request.path = path == url.size() ? "/metrics" : url.substr(path);
  request.body_bytes_max = kTellingBytesMax;
  const HttpReply reply = transport->exchange(request);
  VARVE_TRY(reply.failure);
  if (reply.status != 200) return Status::io_error(fmt::format("the answer is HTTP {}", reply.status), url);
  return std::string(reinterpret_cast<const char*>(reply.body.data()), reply.body.size());
#else
  return Status::unsupported("this build does not ask over HTTP", url, "name a file");
#endif
}

/// As MetricsOutlet takes them: a port, or "host:port".
std::string url_of(const std::string& place) {
  const bool is_port = !place.empty() && place.size() <= 5 &&
                       std::all_of(place.begin(), place.end(), [](char c) { return c >= '0' && c <= '9'; });
  return is_port ? "http://127.0.0.1:" + place : "http://" + place;
}

uint32_t number_of_process(const std::string& text) {
  uint32_t number = 0;
  for (const char digit : text) {
    if (digit < '0' || digit > '9' || number > 400'000'000) return 0;
    number = number * 10 + static_cast<uint32_t>(digit - '0');
  }
  return number;
}

/// Counts as counts, times as times.
std::string step_words(const std::optional<double>& step) {
  if (!step) return "-";
  return *step == std::floor(*step) && std::abs(*step) < 1e15 ? fmt::format("{:.0f}", *step) : fmt::format("{}", *step);
}

std::string state_of_run(const TopRun& run, bool running, bool failed, double now, bool is_dead) {
  if (!running) return failed ? "failed" : "ended";
  if (is_dead) return "killed";
  return now - run.updated > kSilentSeconds ? "silent" : "running";
}

TopLevel& level_of(TopRun& run, const std::string& name) {
  const auto found =
      std::find_if(run.levels.begin(), run.levels.end(), [&](const TopLevel& level) { return level.name == name; });
  if (found != run.levels.end()) return *found;
  run.levels.push_back({.name = name});
  return run.levels.back();
}

/// A run as its samples come.
struct RunTold {
  TopRun run{};
  bool running = false, failed = false, is_run = false;

  void take(const MetricsSample& sample) {
    const std::string_view name = std::string_view(sample.name).substr(std::string_view("varve_run_").size());
    const double value = sample.value;
    if (name.starts_with("level_")) return take_level(name.substr(6), sample);
    if (name == "info") {
      is_run = true;
      run.run = sample.label("run");
      run.host = sample.label("host");
      run.store = sample.label("store");
      run.process = number_of_process(sample.label("process"));
    }
    if (name == "running") running = value != 0;
    if (name == "failed") failed = value != 0;
    if (name == "ranks") run.ranks = value;
    if (name == "start_timestamp_seconds") run.begin = value;
    if (name == "updated_timestamp_seconds") run.updated = value;
    if (name == "newest_step") run.step = value;
    if (name == "queue_bytes") run.queue_bytes = value;
    if (name == "raw_bytes_total") run.raw_bytes = value;
    if (name == "stored_bytes_total") run.stored_bytes = value;
    if (name == "snapshot_bytes_total") run.snapshot_bytes = value;
    if (name == "checkpoints_total") run.checkpoints[sample.label("outcome")] = value;
    if (name == "blocked_seconds_total") {
      run.blocked[sample.label("cause")] = value;
      run.blocked_seconds += value;
    }
  }

  void take_level(std::string_view name, const MetricsSample& sample) {
    TopLevel& level = level_of(run, sample.label("level"));
    if (name == "newest_step") level.step = sample.value;
    if (name == "lag_seconds") level.lag_seconds = sample.value;
    if (name == "waiting_sets") level.waiting = sample.value;
    if (name == "failures_total") level.failures = sample.value;
    if (name == "given_up_sets_total") level.given_up = sample.value;
  }
};

/// Of what has told this last, whether it is at work.
struct TopLife {
  std::optional<double> running{}, updated{};
  bool busy = false;  ///< with something that it tells nothing from

  void take(std::string_view name, double value) {
    if (name == "running") running = value;
    if (name == "updated_timestamp_seconds") updated = value;
    if (name == "saving") busy = value != 0;
  }
  std::string state(double now) const {
    if (running && *running == 0) return "ended";
    return updated && !busy && now - *updated > kSilentSeconds ? "silent" : "running";
  }
};

/// A server as its samples come.
struct ServerTold {
  TopServer server{};
  TopLife life{};

  void take(const MetricsSample& sample) {
    const std::string_view name = std::string_view(sample.name).substr(std::string_view("varve_server_").size());
    life.take(name, sample.value);
    if (name == "info") server.address = sample.label("address"), server.store = sample.label("store");
    if (name == "connections") server.connections += sample.value;
    if (name == "start_timestamp_seconds") server.begin = sample.value;
    if (name == "received_bytes_total") server.received_bytes = sample.value;
    if (name == "sent_bytes_total") server.sent_bytes = sample.value;
    if (name != "requests_total") return;
    server.requests += sample.value;
    if (sample.label("outcome") != "done" && sample.label("outcome") != "refused") server.failures += sample.value;
  }
};

/// A watcher as its samples come.
struct WatcherTold {
  TopWatcher watcher{};
  TopLife life{};
  /// Of a job at a level: when its newest set was saved, and its step. The newest of all is shown.
  std::map<std::pair<std::string, std::string>, std::pair<double, double>> newest{};

  void take(const MetricsSample& sample) {
    const std::string_view name = std::string_view(sample.name).substr(std::string_view("varve_watch_").size());
    const double value = sample.value;
    life.take(name, value);
    if (name == "info") watcher.from = sample.label("from"), watcher.to = sample.label("to");
    if (name == "saved_sets_total") watcher.saved = value;
    if (name == "raw_bytes_total") watcher.raw_bytes = value;
    if (name == "stored_bytes_total") watcher.stored_bytes = value;
    if (name == "failures_total") watcher.failures = value;
    if (name == "pending_sets") watcher.pending[sample.label("state")] = value;
    if (name == "level_lag_seconds") watcher.lag_seconds = std::max(watcher.lag_seconds.value_or(0), value);
    if (name == "level_newest_timestamp_seconds") newest_of(sample).first = value;
    if (name == "level_newest_step") newest_of(sample).second = value;
  }
  std::pair<double, double>& newest_of(const MetricsSample& sample) {
    return newest[{sample.label("job"), sample.label("level")}];
  }
  TopWatcher shown(double now) {
    watcher.state = life.state(now);
    const auto last = std::max_element(newest.begin(), newest.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    if (last != newest.end()) watcher.newest = last->first.first + "@" + step_words(last->second.second);
    return std::move(watcher);
  }
};

TopWatcher watcher_of(const WatchStatus& status) {
  TopWatcher watcher{.to = status.to, .newest = status.newest, .state = "running"};
  for (const std::string& folder : status.folders) watcher.from += (watcher.from.empty() ? "" : ", ") + folder;
  watcher.saved = static_cast<double>(status.saved_sets);
  watcher.raw_bytes = static_cast<double>(status.raw_bytes);
  watcher.stored_bytes = static_cast<double>(status.stored_bytes);
  watcher.failures = static_cast<double>(status.failures);
  for (const WatchStatus::Pending& set : status.pending) ++watcher.pending[set.state];
  return watcher;
}
}  // namespace

void add_metrics(TopView& view, std::string_view text, const std::string& source, bool is_dead) {
  std::map<std::string, RunTold> runs;  // by job: a collector may tell of several
  // By what they work on, of which there may be several as well.
  std::map<std::string, ServerTold> servers;
  std::map<std::string, WatcherTold> watchers;
  for (const MetricsSample& sample : parse_metrics(text)) {
    if (!std::isfinite(sample.value)) continue;
    if (sample.name.starts_with("varve_run_")) runs[sample.label("job")].take(sample);
    if (sample.name.starts_with("varve_server_")) servers[sample.label("store")].take(sample);
    if (sample.name.starts_with("varve_watch_")) watchers[sample.label("from")].take(sample);
  }
  for (auto& [job, told] : runs) {
    if (!told.is_run) continue;
    told.run.job = job;
    told.run.source = source;
    told.run.state = state_of_run(told.run, told.running, told.failed, view.at, is_dead);
    view.runs.push_back(std::move(told.run));
  }
  for (auto& [store, told] : servers) {
    // Of one that was killed there is nothing to tell: it goes on when it is started again.
    if (is_dead) break;
    told.server.source = source;
    told.server.state = told.life.state(view.at);
    view.servers.push_back(std::move(told.server));
  }
  for (auto& [from, told] : watchers) {
    told.watcher.source = source;
    view.watchers.push_back(told.shown(view.at));
  }
}

namespace {
void add_folder(TopView& view, const std::string& folder, bool is_of_node) {
  const Result<std::vector<DirectoryEntry>> entries = posix_file_system().list(folder);
  if (!entries.ok()) {
    view.unread.emplace_back(folder, entries.status());
    return;
  }
  std::vector<std::string> names;
  for (const DirectoryEntry& entry : *entries) {
    if (is_of_node ? parse_live_file_name(entry.name).has_value() : entry.name.ends_with(".prom"))
      names.push_back(entry.name);
  }
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    const std::string path = join_path(folder, name);
    const Result<std::string> text = read_telling(path);
    if (text.ok()) {
      const std::optional<LiveFile> file = is_of_node ? parse_live_file_name(name) : std::nullopt;
      add_metrics(view, *text, path, file && liveness(file->process) == Liveness::dead);
    } else if (text.status().code() != StatusCode::not_found && !is_of_node) {
      // Runs of other users are theirs, and one may have ended just now.
      view.unread.emplace_back(path, text.status());
    }
  }
}

void sort_runs(TopView& view) {
  std::stable_sort(view.runs.begin(), view.runs.end(), [](const TopRun& a, const TopRun& b) {
    return std::pair(a.job, a.begin) < std::pair(b.job, b.begin);
  });
}
}  // namespace

TopView view_of_node(const std::string& memory) {
  TopView view{.at = calendar_time()};
  add_folder(view, memory, /*is_of_node=*/true);
  const Result<std::string> state = state_folder();
  const Result<std::vector<WatchStatus>> watchers =
      state.ok() ? read_watch_statuses(*state) : Result<std::vector<WatchStatus>>(std::vector<WatchStatus>());
  if (watchers.ok()) {
    for (const WatchStatus& status : *watchers) {
      if (status.alive) view.watchers.push_back(watcher_of(status));
    }
  } else {
    view.unread.emplace_back(*state, watchers.status());
  }
  sort_runs(view);
  return view;
}

TopView view_of_places(const std::vector<std::string>& places) {
  TopView view{.at = calendar_time()};
  for (const std::string& place : places) {
    struct stat facts {};
    const bool is_there = ::stat(place.c_str(), &facts) == 0;
    if (is_there && S_ISDIR(facts.st_mode)) {
      add_folder(view, place, /*is_of_node=*/false);
      continue;
    }
    const bool is_url = place.starts_with("http://") || place.starts_with("https://");
    const bool is_file = is_there || (!is_url && (place.find('/') != std::string::npos || place.ends_with(".prom")));
    const Result<std::string> text = is_file ? read_telling(place) : fetch_telling(is_url ? place : url_of(place));
    if (text.ok()) {
      add_metrics(view, *text, place);
    } else {
      view.unread.emplace_back(place, text.status());
    }
  }
  sort_runs(view);
  return view;
}

void add_rates(TopView& view, const TopView* before) {
  for (TopRun& run : view.runs) {
    const double since_begin = run.updated - run.begin;
    if (since_begin > 0) run.bytes_per_second = run.raw_bytes / since_begin;
    if (before == nullptr) continue;
    for (const TopRun& earlier : before->runs) {
      const bool is_same = earlier.source == run.source && earlier.run == run.run && earlier.job == run.job;
      // What it told last may be what it told before.
      if (is_same && run.updated == earlier.updated) run.bytes_per_second = earlier.bytes_per_second;
      if (is_same && run.updated > earlier.updated)
        run.bytes_per_second = std::max(0.0, run.raw_bytes - earlier.raw_bytes) / (run.updated - earlier.updated);
    }
  }
}

namespace {
Json numbers_json(const std::map<std::string, double>& numbers) {
  Json json = Json::object();
  for (const auto& [name, value] : numbers) json[name] = value;
  return json;
}

Json number_or_null(const std::optional<double>& number) { return number ? Json(*number) : Json(nullptr); }

uint64_t whole(double value) {
  return value >= 0x1p63 ? uint64_t{1} << 63 : value > 0 ? static_cast<uint64_t>(value) : 0;
}

std::string bytes_words(double raw, double stored) {
  if (raw <= 0) return "-";
  return fmt::format("{} → {} ({})", format_size(whole(raw)), format_size(whole(stored)),
                     format_ratio(whole(raw), whole(stored)));
}

double count_of(const std::map<std::string, double>& counts, const std::string& name) {
  const auto found = counts.find(name);
  return found == counts.end() ? 0 : found->second;
}

std::string count_words(double count) { return fmt::format("{}", whole(count)); }

std::string runs_text(const std::vector<TopRun>& runs) {
  using enum Table::Align;
  Table table({{"job / level"},
               {"state"},
               {"ranks", right},
               {"step", right},
               {"behind", right},
               {"waits", right},
               {"blocked", right},
               {"queue", right},
               {"raw → stored", right},
               {"rate", right},
               {"saved", right},
               {"skipped", right},
               {"failed", right}});
  for (const TopRun& run : runs) {
    const double passed = run.updated - run.begin;
    table.add_row({quote_name(run.job), run.state, count_words(run.ranks), step_words(run.step), "", "",
                   fmt::format("{} ({})", format_duration(run.blocked_seconds),
                               // What it tells first is of before its begin, too.
                               passed > run.blocked_seconds ? format_percent(run.blocked_seconds / passed) : "-"),
                   format_size(whole(run.queue_bytes)), bytes_words(run.raw_bytes, run.stored_bytes),
                   run.bytes_per_second ? format_rate(*run.bytes_per_second) : "-",
                   count_words(count_of(run.checkpoints, "persistent")),
                   count_words(count_of(run.checkpoints, "skipped")),
                   count_words(count_of(run.checkpoints, "failed"))});
    for (const TopLevel& level : run.levels)
      table.add_row({"  " + quote_name(level.name), "", "", step_words(level.step), format_duration(level.lag_seconds),
                     count_words(level.waiting), "", "", "", "", "",
                     level.given_up > 0 ? count_words(level.given_up) : "", count_words(level.failures)});
  }
  return table.empty() ? "no runs\n" : table.render();
}

std::string watchers_text(const std::vector<TopWatcher>& watchers) {
  using enum Table::Align;
  Table table({{"watcher"},
               {"to"},
               {"state"},
               {"behind", right},
               {"saved", right},
               {"waiting", right},
               {"failed", right},
               {"raw → stored", right},
               {"newest"}});
  for (const TopWatcher& one : watchers)
    table.add_row({quote_name(one.from.empty() ? one.source : one.from), quote_name(one.to), one.state,
                   one.lag_seconds ? format_duration(*one.lag_seconds) : "-", count_words(one.saved),
                   count_words(count_of(one.pending, "waiting")), count_words(count_of(one.pending, "failed")),
                   bytes_words(one.raw_bytes, one.stored_bytes), one.newest.empty() ? "-" : quote_name(one.newest)});
  return table.empty() ? "" : "\n" + table.render();
}

std::string servers_text(const std::vector<TopServer>& servers) {
  using enum Table::Align;
  Table table({{"server"},
               {"store"},
               {"state"},
               {"connections", right},
               {"requests", right},
               {"failed", right},
               {"received", right},
               {"sent", right}});
  for (const TopServer& one : servers)
    table.add_row({quote_name(one.address.empty() ? one.source : one.address),
                   one.store.empty() ? "-" : quote_name(one.store), one.state, count_words(one.connections),
                   count_words(one.requests), count_words(one.failures), format_size(whole(one.received_bytes)),
                   format_size(whole(one.sent_bytes))});
  return table.empty() ? "" : "\n" + table.render();
}
}  // namespace

std::string top_text(const TopView& view) {
  std::string text = runs_text(view.runs) + watchers_text(view.watchers) + servers_text(view.servers);
  for (const auto& [place, why] : view.unread)
    text += fmt::format("\n{} cannot be read: {}\n", quote_name(place), escape_text(why.message()));
  return text;
}

Json to_json(const TopView& view) {
  Json runs = Json::array(), watchers = Json::array(), servers = Json::array(), unread = Json::array();
  for (const TopRun& run : view.runs) {
    Json levels = Json::array();
    for (const TopLevel& level : run.levels)
      levels.push_back({{"level", level.name},
                        {"newest", number_or_null(level.step)},
                        {"lag_seconds", level.lag_seconds},
                        {"waiting", whole(level.waiting)},
                        {"failures", whole(level.failures)},
                        {"given_up", whole(level.given_up)}});
    runs.push_back({{"job", run.job},
                    {"run", run.run},
                    {"state", run.state},
                    {"host", run.host},
                    {"process", run.process},
                    {"ranks", whole(run.ranks)},
                    {"store", run.store},
                    {"source", run.source},
                    {"begin", run.begin},
                    {"updated", run.updated},
                    {"newest", number_or_null(run.step)},
                    {"blocked_seconds", run.blocked_seconds},
                    {"blocked", numbers_json(run.blocked)},
                    {"queue_bytes", whole(run.queue_bytes)},
                    {"snapshot_bytes", whole(run.snapshot_bytes)},
                    {"raw_bytes", whole(run.raw_bytes)},
                    {"stored_bytes", whole(run.stored_bytes)},
                    {"bytes_per_second", number_or_null(run.bytes_per_second)},
                    {"checkpoints", numbers_json(run.checkpoints)},
                    {"levels", std::move(levels)}});
  }
  for (const TopWatcher& one : view.watchers)
    watchers.push_back({{"from", one.from},
                        {"to", one.to},
                        {"state", one.state},
                        {"source", one.source},
                        {"saved_sets", whole(one.saved)},
                        {"raw_bytes", whole(one.raw_bytes)},
                        {"stored_bytes", whole(one.stored_bytes)},
                        {"failures", whole(one.failures)},
                        {"lag_seconds", number_or_null(one.lag_seconds)},
                        {"newest", one.newest},
                        {"pending", numbers_json(one.pending)}});
  for (const TopServer& one : view.servers)
    servers.push_back({{"source", one.source},
                       {"address", one.address},
                       {"store", one.store},
                       {"state", one.state},
                       {"begin", one.begin},
                       {"connections", whole(one.connections)},
                       {"requests", whole(one.requests)},
                       {"failures", whole(one.failures)},
                       {"received_bytes", whole(one.received_bytes)},
                       {"sent_bytes", whole(one.sent_bytes)}});
  for (const auto& [place, why] : view.unread) unread.push_back({{"place", place}, {"error", to_json(why)}});
  return {{"at", view.at},
          {"runs", std::move(runs)},
          {"watchers", std::move(watchers)},
          {"servers", std::move(servers)},
          {"unread", std::move(unread)}};
}

}  // namespace varve::cli
