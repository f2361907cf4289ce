#include "watch/watch_status.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/file_system.h"
#include "core/state_folder.h"
#include "core/step_text.h"
#include "hash/score.h"

namespace varve {

namespace {
using Json = nlohmann::ordered_json;
constexpr uintmax_t kStatusBytesMax = 16u << 20;

/// Names differ if what is watched differs, or what becomes of it.
std::string name_of(const std::vector<std::string>& folders, const std::string& to, const std::string& as) {
  std::string text = to;
  if (!as.empty()) text.append("\n").append(as);
  for (const std::string& folder : folders) text.append("\n").append(folder);
  return to_hex(ScoreFunction::preferred()(as_bytes(text)).bytes).substr(0, 16);
}

WatchStatus from_json(const Json& json) {
  WatchStatus status;
  status.folders = json.at("folders").get<std::vector<std::string>>();
  status.to = json.at("to");
  status.host = json.at("host");
  status.process = json.at("process");
  status.started_s = json.at("started_s");
  status.saved_sets = json.at("saved_sets");
  status.removed_sets = json.at("removed_sets");
  status.failures = json.value("failures", uint64_t{0});  // others have written what an older version wrote
  status.raw_bytes = json.at("raw_bytes");
  status.stored_bytes = json.at("stored_bytes");
  status.saving = json.at("saving");
  status.newest = json.at("newest");
  status.newest_s = json.at("newest_s");
  for (const Json& set : json.at("pending")) status.pending.push_back({set.at("set"), set.at("state"), set.at("why")});
  return status;
}

Status make_folders(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  return error ? Status::from_errno(error.value(), "make", path) : Status();
}

bool is_locked(const std::string& path) {
  const UniqueFd lock(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return lock.valid() && ::flock(lock.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}
}  // namespace

namespace {
void tell_watched_levels(const WatchStatus& status, Metrics& metrics) {
  metrics.gauge("varve_watch_level_newest_step", "The step of a job's newest set at a level, or in the one store.");
  for (const WatchStatus::Level& level : status.levels) {
    if (level.newest)
      metrics.sample(time_of_step(*level.newest).value_or(static_cast<double>(*level.newest)),
                     {{"job", level.job}, {"level", level.level}});
  }
  metrics.gauge("varve_watch_level_newest_timestamp_seconds", "When that set was saved to the nearest store.");
  for (const WatchStatus::Level& level : status.levels) {
    if (level.newest) metrics.sample(static_cast<double>(level.newest_s), {{"job", level.job}, {"level", level.level}});
  }
  metrics.gauge("varve_watch_level_lag_seconds", "How much older that set is than the newest that there is.");
  for (const WatchStatus::Level& level : status.levels)
    metrics.sample(level.lag_seconds, {{"job", level.job}, {"level", level.level}});
}
}  // namespace

Metrics metrics_of(const WatchStatus& status) {
  std::string from;
  for (const std::string& folder : status.folders) from += (from.empty() ? "" : ", ") + folder;
  Metrics metrics = Metrics::with({{"from", from}});
  const auto number = [](auto value) { return static_cast<double>(value); };
  metrics.gauge("varve_watch_info", "The watcher: 1.").sample(1, {{"host", status.host}, {"to", status.to}});
  metrics.gauge("varve_watch_running", "Whether the watcher runs, as far as it could tell.")
      .sample(status.running ? 1 : 0);
  metrics.gauge("varve_watch_updated_timestamp_seconds", "When all this was true.").sample(status.updated);
  metrics.gauge("varve_watch_start_timestamp_seconds", "When the watcher was started.")
      .sample(number(status.started_s));
  metrics.counter("varve_watch_saved_sets", "Sets that were saved.").sample(number(status.saved_sets));
  metrics.counter("varve_watch_removed_sets", "Sets of which the originals were removed.")
      .sample(number(status.removed_sets));
  metrics.counter("varve_watch_failures", "How often a set could not be saved.").sample(number(status.failures));
  metrics.counter("varve_watch_raw_bytes", "Bytes of the sets that were saved.").sample(number(status.raw_bytes));
  metrics.counter("varve_watch_stored_bytes", "Bytes that were written for them.").sample(number(status.stored_bytes));
  metrics.gauge("varve_watch_newest_timestamp_seconds", "When a set was last saved; 0: none was.")
      .sample(number(status.newest_s));
  metrics.gauge("varve_watch_saving", "Whether a set is being saved.").sample(status.saving.empty() ? 0 : 1);
  metrics.gauge("varve_watch_pending_sets", "Sets that are there and not saved, by what they wait for.");
  for (const char* state : {"waiting", "failed", "differs"}) {
    const auto is_so = [&](const WatchStatus::Pending& set) { return set.state == state; };
    metrics.sample(number(std::count_if(status.pending.begin(), status.pending.end(), is_so)), {{"state", state}});
  }
  metrics.gauge("varve_watch_pending_bytes", "Bytes of the sets that wait, or could not be saved.")
      .sample(number(status.pending_bytes));
  tell_watched_levels(status, metrics);
  return metrics;
}

Json to_json(const WatchStatus& status) {
  Json pending = Json::array();
  for (const WatchStatus::Pending& set : status.pending)
    pending.push_back({{"set", set.set}, {"state", set.state}, {"why", set.why}});
  return Json{{"folders", status.folders},
              {"to", status.to},
              {"host", status.host},
              {"process", status.process},
              {"started_s", status.started_s},
              {"saved_sets", status.saved_sets},
              {"removed_sets", status.removed_sets},
              {"failures", status.failures},
              {"raw_bytes", status.raw_bytes},
              {"stored_bytes", status.stored_bytes},
              {"saving", status.saving},
              {"newest", status.newest},
              {"newest_s", status.newest_s},
              {"pending", std::move(pending)}};
}

Result<StatusFile> StatusFile::open(const std::string& state_folder, const std::vector<std::string>& folders,
                                    const std::string& to, const std::string& as) {
  const std::string place = join_path(state_folder, "watch");
  VARVE_TRY(make_folders(place));
  const std::string path = join_path(place, name_of(folders, to, as));
  const std::string lock_path = path + ".lock";
  UniqueFd lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock.valid()) return Status::from_errno(errno, "open", lock_path);
  // Who only looks holds it for an instant.
  for (int tries = 0; ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0; ++tries) {
    if (errno != EWOULDBLOCK) return Status::from_errno(errno, "lock", lock_path);
    if (tries == 20)
      return Status::busy("another watcher saves the same from there to the same store", folders.front(),
                          "`varve status` shows the watchers that run");
    ::usleep(10'000);
  }
  return StatusFile(std::move(lock), path + ".json");
}

Status StatusFile::write(const WatchStatus& status) const {
  const std::string text = to_json(status).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  return replace_text_file(path_, text);
}

Result<std::vector<WatchStatus>> read_watch_statuses(const std::string& state_folder) {
  const std::string place = join_path(state_folder, "watch");
  Result<std::vector<DirectoryEntry>> entries = posix_file_system().list(place);
  if (entries.status().code() == StatusCode::not_found) return std::vector<WatchStatus>();
  VARVE_TRY(entries.status());
  std::vector<WatchStatus> statuses;
  for (const DirectoryEntry& entry : *entries) {
    if (!entry.name.ends_with(".json")) continue;
    const std::string path = join_path(place, entry.name);
    const Result<FileStatus> facts = posix_file_system().stat(path);
    if (!facts.ok() || facts->bytes > kStatusBytesMax) continue;
    std::ifstream file(path);
    const Json json = Json::parse(file, nullptr, false);
    try {
      statuses.push_back(from_json(json));
    } catch (const Json::exception&) {
      continue;
    }
    statuses.back().alive = is_locked(path.substr(0, path.size() - 5) + ".lock");
  }
  std::sort(statuses.begin(), statuses.end(),
            [](const WatchStatus& a, const WatchStatus& b) { return a.started_s < b.started_s; });
  return statuses;
}

}  // namespace varve
