#include "runtime/live_file.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "core/file_system.h"
#include "core/sync.h"
#include "runtime/settings.h"

namespace varve {

namespace {
constexpr std::string_view kLivePrefix = "varve-live-", kLiveEnding = ".prom";

/// How long it is shown that a process was killed, if nobody goes on in its place.
constexpr int64_t kShownDeadSeconds = 24 * 3600;

bool is_old(const std::string& path) {
  const Result<FileStatus> status = posix_file_system().stat(path);
  return status.ok() && status->modified_ns / 1'000'000'000 < calendar_seconds() - kShownDeadSeconds;
}

template <class Number>
bool take_live_number(std::string_view text, Number& into) {
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), into);
  return failure == std::errc() && end == text.data() + text.size() && !text.empty();
}
}  // namespace

std::string LiveFile::name() const {
  return fmt::format("{}{}-{}-{}-{}-{}-{}{}", kLivePrefix, user, job_key, process.pid, process.pid_namespace,
                     process.start_ticks, rank, kLiveEnding);
}

std::optional<LiveFile> parse_live_file_name(std::string_view name) {
  if (!name.starts_with(kLivePrefix) || !name.ends_with(kLiveEnding)) return std::nullopt;
  name.remove_prefix(kLivePrefix.size());
  name.remove_suffix(kLiveEnding.size());
  std::array<std::string_view, 6> parts;
  for (size_t i = 0; i < parts.size(); ++i) {
    const size_t end = i + 1 < parts.size() ? name.find('-') : name.size();
    if (end == std::string_view::npos) return std::nullopt;
    parts[i] = name.substr(0, end);
    name.remove_prefix(std::min(end + 1, name.size()));
  }
  LiveFile file;
  const bool whole = take_live_number(parts[0], file.user) && take_live_number(parts[2], file.process.pid) &&
                     take_live_number(parts[3], file.process.pid_namespace) &&
                     take_live_number(parts[4], file.process.start_ticks) && take_live_number(parts[5], file.rank);
  if (!whole) return std::nullopt;
  file.job_key = parts[1];
  if (const Result<ProcessIdentity> own = ProcessIdentity::own(); own.ok()) file.process.boot = own->boot;
  return file;
}

std::string live_folder() {
  const Result<Settings> settings = resolve_settings({}, SettingsSources::of_process());
  return settings.ok() ? settings->snapshots.shared_memory : "/dev/shm";
}

std::string take_live_file(const SegmentFamily& family, uint32_t rank) {
  const Result<ProcessIdentity> own = ProcessIdentity::own();
  if (!own.ok()) return {};
  const Result<std::vector<DirectoryEntry>> entries = posix_file_system().list(family.folder);
  for (const DirectoryEntry& entry : entries.ok() ? *entries : std::vector<DirectoryEntry>()) {
    const std::optional<LiveFile> other = parse_live_file_name(entry.name);
    if (!other || other->user != family.user || liveness(other->process) != Liveness::dead) continue;
    const std::string path = join_path(family.folder, entry.name);
    if (other->job_key == family.job_key || is_old(path))
      posix_file_system().remove(path).ignore("who looks sees that it is dead");
  }
  const LiveFile file{.user = family.user, .job_key = family.job_key, .process = *own, .rank = rank};
  return join_path(family.folder, file.name());
}

}  // namespace varve
