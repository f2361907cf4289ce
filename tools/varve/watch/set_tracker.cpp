#include "watch/set_tracker.h"

#include <algorithm>
#include <optional>
#include <set>

#include "core/file_system.h"
#include "core/open_writers.h"
#include "engine/folder_scan.h"

namespace varve {

namespace {
constexpr double kQuietSecondsMax = 600;
/// Clocks of nodes that write to one file system differ by less.
constexpr double kClocksDifferSeconds = 1;

double written_at(const SourceFile& file) { return static_cast<double>(file.modified_s) + 1e-9 * file.modified_ns; }
double named_at(const SourceFile& file) { return static_cast<double>(file.changed_s) + 1e-9 * file.changed_ns; }

/// By when it was written, and by when it got its name: one that was copied, or written under another name first, is
/// older by one of the two alone.
bool is_older(const SourceFile& marker, const SourceFile& file) {
  return written_at(marker) + kClocksDifferSeconds < written_at(file) &&
         named_at(marker) + kClocksDifferSeconds < named_at(file);
}
}  // namespace

Result<std::string> Completeness::lacking(const FoundSet& set) const {
  std::set<int64_t> ranks;
  bool empty = true;
  for (const SourceFile& file : set.files) {
    if (file.type == FileType::regular) empty = false;
    if (file.rank >= 0) ranks.insert(file.rank);
  }
  if (empty) return std::string("it has no files yet");
  if (ranks.size() < rank_count)
    return "files of " + std::to_string(ranks.size()) + " of " + std::to_string(rank_count) + " ranks are there";
  if (!end_marker.empty()) {
    std::string name = end_marker;
    constexpr std::string_view placeholder = "{step}";
    if (const size_t at = name.find(placeholder); at != std::string::npos)
      name.replace(at, placeholder.size(), step_text(set.step));
    const Result<NamedSource> marker = look_at_source(join_path(set.folder, name));
    if (marker.status().code() == StatusCode::not_found) return "there is no " + name + " yet";
    VARVE_TRY(marker.status());
    for (const SourceFile& file : set.files) {
      if (file.type == FileType::regular && is_older(marker->self, file)) return name + " is older than " + file.path;
    }
  }
  return std::string();
}

std::chrono::milliseconds Completeness::quiet_from(const FoundSet& set, std::optional<int64_t> now_s) const {
  std::optional<double> first, last;
  for (const SourceFile& file : set.files) {
    if (file.type != FileType::regular || file.rank < 0) continue;
    first = std::min(first.value_or(written_at(file)), written_at(file));
    last = std::max(last.value_or(written_at(file)), written_at(file));
  }
  if (rank_count == 0 || !last) return {};
  const double was_quiet = now_s ? std::max(static_cast<double>(*now_s) - *last, 0.0) : 0;
  const double seconds = std::max(std::min(*last - *first, kQuietSecondsMax) - was_quiet, 0.0);
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

Result<std::string> being_written(const FoundSet& set) {
  for (const SourceFile& file : set.files) {
    if (file.type != FileType::regular) continue;
    VARVE_ASSIGN(const bool written, is_being_written(join_path(set.folder, file.path)));
    if (written) return "a program is writing " + file.path;
  }
  return std::string();
}

namespace {
constexpr std::chrono::milliseconds kPauseMin(5'000), kPauseMax(600'000), kLookMin(200);

SetTracker::Key key_of(size_t where, const FoundSet& set) {
  return {where, set.goes_by_time ? 0 : set.step, set.folder};
}
}  // namespace

bool are_unchanged(const std::vector<SourceFile>& before, const std::vector<SourceFile>& after) {
  return std::equal(
      before.begin(), before.end(), after.begin(), after.end(), [](const SourceFile& x, const SourceFile& y) {
        return x.path == y.path && x.type == y.type && x.bytes == y.bytes && x.modified_s == y.modified_s &&
               x.modified_ns == y.modified_ns && x.changed_s == y.changed_s && x.changed_ns == y.changed_ns;
      });
}

SetTracker::Time SetTracker::due_after(const FoundSet& set, bool has_changed, Time now) const {
  return now + std::max(quiet_, longer_ ? longer_(set, has_changed) : quiet_);
}

void SetTracker::update(size_t where, const std::string& job, std::vector<FoundSet> sets, Time now) {
  std::set<Key> there;
  for (FoundSet& set : sets) {
    const Key key = key_of(where, set);
    there.insert(key);
    const auto [place, added] = entries_.try_emplace(key);
    Entry& entry = place->second;
    if (added) {
      entry.name = {job, set.step};
      entry.due = due_after(set, false, now);
      entry.found = std::move(set);
    } else {
      update(entry, std::move(set), now);
    }
  }
  std::erase_if(entries_,
                [&](const auto& item) { return std::get<0>(item.first) == where && !there.contains(item.first); });
}

bool SetTracker::update(Entry& entry, FoundSet found, Time now) {
  if (are_unchanged(entry.found.files, found.files)) return true;
  entry.found = std::move(found);
  entry.name.step = entry.found.step;
  entry.state = WatchState::waiting;
  entry.due = due_after(entry.found, true, now);
  entry.lacking.clear();
  entry.failure = {};
  entry.pause = std::chrono::milliseconds(0);
  return false;
}

SetTracker::Entry* SetTracker::next_due(Time now) {
  Entry* first = nullptr;
  for (auto& [key, entry] : entries_) {
    if (entry.state != WatchState::waiting && entry.state != WatchState::failed) continue;
    if (entry.due <= now && (first == nullptr || entry.found.step < first->found.step)) first = &entry;
  }
  return first;
}

SetTracker::Time SetTracker::next_time(Time latest) const {
  for (const auto& [key, entry] : entries_) {
    if (entry.state == WatchState::waiting || entry.state == WatchState::failed) latest = std::min(latest, entry.due);
  }
  return latest;
}

void SetTracker::wait(Entry& entry, std::string lacking, Time now, std::chrono::milliseconds pause) {
  entry.state = WatchState::waiting;
  entry.lacking = std::move(lacking);
  entry.due = now + std::max({quiet_, kLookMin, pause});
}

void SetTracker::fail(Entry& entry, Status why, Time now) {
  entry.state = WatchState::failed;
  entry.failure = std::move(why);
  entry.pause = std::clamp(2 * entry.pause, kPauseMin, kPauseMax);
  entry.due = now + entry.pause;
}

void SetTracker::settle(Entry& entry, WatchState state, Status why) {
  entry.state = state;
  entry.failure = std::move(why);
  entry.lacking.clear();
}

const SetTracker::Entry* SetTracker::find(size_t where, const FoundSet& set) const {
  const auto place = entries_.find(key_of(where, set));
  return place == entries_.end() ? nullptr : &place->second;
}

}  // namespace varve
