#include "runtime/timeline_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/file_system.h"
#include "core/process.h"
#include "level/store_access.h"

namespace varve {

std::string_view run_event_name(RunEventKind kind) {
  switch (kind) {
    case RunEventKind::open: return "open";
    case RunEventKind::restart: return "restart";
    case RunEventKind::making: return "making";
    case RunEventKind::checkpoint: return "checkpoint";
    case RunEventKind::skipped: return "skipped";
    case RunEventKind::waited: return "waited";
    case RunEventKind::stored: return "stored";
    case RunEventKind::failed: return "failed";
    case RunEventKind::begun: return "begun";
    case RunEventKind::arrived: return "arrived";
    case RunEventKind::away: return "away";
    case RunEventKind::given_up: return "given_up";
    case RunEventKind::end: return "end";
  }
  return "";
}

namespace {
using EventJson = nlohmann::ordered_json;

/// Microseconds are enough, and short.
double rounded(double seconds) { return static_cast<double>(static_cast<int64_t>(seconds * 1e6 + 0.5)) * 1e-6; }

void put(EventJson& json, const char* key, double seconds) {
  if (seconds != 0) json[key] = rounded(seconds);
}
void put(EventJson& json, const char* key, uint64_t count) {
  if (count != 0) json[key] = count;
}
void put(EventJson& json, const char* key, const std::string& text) {
  if (!text.empty()) json[key] = text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}
}  // namespace

std::string run_event_line(const RunEvent& event, std::string_view run) {
  EventJson json{{"event", run_event_name(event.kind)}, {"run", run}, {"at", rounded(event.at)}};
  put(json, "step", event.step);
  put(json, "begin", event.begin);
  if (event.kind == RunEventKind::open) {
    json["levels"] = lines_of(event.place);
    put(json, "ranks", event.count);
    put(json, "host", event.host);
    put(json, "process", uint64_t{event.process.pid});
    if (event.process.start_ticks != 0) json["boot"] = event.process.boot.hex();
    put(json, "pid_namespace", event.process.pid_namespace);
    put(json, "start_ticks", event.process.start_ticks);
  } else {
    put(json, event.kind == RunEventKind::restart ? "from" : "level", event.place);
    put(json, event.kind == RunEventKind::restart ? "passed_over" : "lost", event.count);
  }
  put(json, "bytes", event.bytes);
  put(json, "copied_bytes", event.copied_bytes);
  put(json, "stored_bytes", event.stored_bytes);
  put(json, "work_begin", event.work_begin);
  put(json, "work_seconds", event.work_seconds);
  put(json, "processor_seconds", event.processor_seconds);
  put(json, "read_seconds", event.times.read);
  put(json, "score_seconds", event.times.score);
  put(json, "encode_seconds", event.times.encode);
  put(json, "write_seconds", event.times.write);
  put(json, "sync_seconds", event.times.sync);
  put(json, "starved_seconds", event.times.starved);
  if (event.stays_in_memory) json["stays_in_memory"] = true;
  if (event.tells_blocked) {
    EventJson blocked = EventJson::object();
    for (size_t i = 0; i < kBlockedCauses; ++i) {
      const auto cause = static_cast<BlockedCause>(i);
      put(blocked, std::string(blocked_cause_name(cause)).c_str(), event.blocked.of(cause));
    }
    json["blocked"] = std::move(blocked);
  }
  put(json, "why", event.why);
  return json.dump(-1, ' ', false, EventJson::error_handler_t::replace) + "\n";
}

std::vector<std::string> timeline_places(const Settings& settings, const std::string& node, const std::string& job) {
  if (settings.timeline == "none") return {};
  std::vector<std::string> folders;
  if (settings.timeline != "auto") folders.push_back(settings.timeline);
  for (const bool of_node : {false, true}) {
    for (auto level = settings.levels.rbegin(); level != settings.levels.rend(); ++level) {
      const bool is_folder = of_node ? level->is_of_node() : level->kind == &kFolderLevel;
      // That of the leases of runs.
      if (is_folder && settings.timeline == "auto")
        folders.push_back(join_path(LevelStore::path_of(*level, node), "runs"));
    }
  }
  // A program may go to another folder.
  std::vector<std::string> places;
  for (const std::string& folder : folders)
    places.push_back(timeline_path(std::filesystem::absolute(folder).string(), job));
  return places;
}

std::string timeline_path(const std::string& folder, const std::string& job) {
  return join_path(folder, job + ".timeline");
}

std::string older_timeline_path(const std::string& path) { return path + ".1"; }

namespace {
Result<UniqueFd> open_log(const std::string& path) {
  // Whatever else may lie there is neither followed nor waited for.
  constexpr int kFlags = O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  UniqueFd file(::open(path.c_str(), kFlags, 0644));
  if (!file.valid() && errno == ENOENT) {
    if (::mkdir(std::filesystem::path(path).parent_path().c_str(), 0777) == 0 || errno == EEXIST)
      file.reset(::open(path.c_str(), kFlags, 0644));
  }
  if (!file.valid()) return Status::from_errno(errno, "open", path);
  return file;
}
}  // namespace

Status append_to_timeline(const std::string& path, std::string_view lines) {
  VARVE_ASSIGN(UniqueFd file, open_log(path));
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) return Status::from_errno(errno, "look at", path);
  if (!S_ISREG(facts.st_mode)) return Status::invalid_argument("the log of a run is to be a plain file", path);
  if (facts.st_size > 0 && static_cast<uint64_t>(facts.st_size) + lines.size() > kTimelineBytesMax) {
    if (::rename(path.c_str(), older_timeline_path(path).c_str()) != 0)
      return Status::from_errno(errno, "put aside", path);
    VARVE_ASSIGN(file, open_log(path));
    facts.st_size = 0;
  }
  char last = '\n';
  if (facts.st_size > 0 && ::pread(file.get(), &last, 1, facts.st_size - 1) != 1) last = '\n';
  std::string text(last == '\n' ? "" : "\n");
  text += lines;
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t now = ::write(file.get(), text.data() + written, text.size() - written);
    if (now < 0 && errno == EINTR) continue;
    if (now < 0) return Status::from_errno(errno, "write", path);
    written += static_cast<size_t>(now);
  }
  return {};
}

}  // namespace varve
