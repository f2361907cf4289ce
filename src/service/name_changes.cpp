#include "service/name_changes.h"

#include <algorithm>

namespace varve {

namespace {
/// Far more than a store has, but for the folders of jobs, which who saves into them watches.
constexpr size_t kFoldersMax = 4096;

Status may_be_lost(const std::string& folder) {
  return Status::io_error("the server's machine was restarted: names that were changed before may be lost", folder,
                          "do again what was being done");
}
}  // namespace

void NameChanges::note(const std::string& folder, const UniqueId& run) {
  ++count_;
  if (watchers_.contains(run)) return;
  const auto found = unsynced_.find(folder);
  if (found != unsynced_.end()) {
    found->second.last = count_;
  } else if (unsynced_.size() < kFoldersMax) {
    unsynced_.emplace(folder, Change{run, count_});
  } else if (!lost_count_) {
    lost_count_ = run;
  }
}

bool NameChanges::someone_watches_another(const UniqueId& run) const {
  return std::any_of(watchers_.begin(), watchers_.end(), [&](const auto& watched) { return watched.first != run; });
}

Status NameChanges::check_sync(const std::string& folder, const UniqueId& run) {
  if (someone_watches_another(run) || (lost_count_ && *lost_count_ != run)) return may_be_lost(folder);
  const auto changed = unsynced_.find(folder);
  if (changed == unsynced_.end() || changed->second.first_run == run) return {};
  unsynced_.erase(changed);
  return may_be_lost(folder);
}

void NameChanges::forget_synced(const std::string& folder, uint64_t count) {
  const auto changed = unsynced_.find(folder);
  if (changed != unsynced_.end() && changed->second.last <= count) unsynced_.erase(changed);
}

void NameChanges::end_watch(const UniqueId& run) {
  const auto watched = watchers_.find(run);
  if (--watched->second == 0) watchers_.erase(watched);
}

}  // namespace varve
