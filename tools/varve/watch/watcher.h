#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/diff.h"
#include "engine/save.h"
#include "watch/folder_events.h"
#include "watch/set_tracker.h"

namespace varve {

struct WatchOptions {
  std::vector<std::string> folders;
  SetPatterns patterns{SetPattern()};
  std::string job;         ///< of all sets; empty: the name of the watched folder
  std::string rank_regex;  ///< RankGrouping::rank_regex
  Completeness completeness;
  double quiet_seconds = 10;   ///< how long nothing must have changed
  double rescan_seconds = 60;  ///< how often everything is looked at, whatever the system tells of changes
  bool remove_originals = false;
};

/// Something that happened; `entry` has the set, and if it failed why.
struct WatchEvent {
  enum class Kind : uint8_t { found, saved, was_saved, removed, differs, failed } kind = Kind::found;
  const SetTracker::Entry& entry;
  const SaveReport* report = nullptr;  ///< saved
  double seconds = 0;                  ///< saved: it took so long
};

/// Is told what a watcher does, in its thread.
class WatchListener {
 public:
  virtual ~WatchListener() = default;
  virtual void happened(const WatchEvent& event) = 0;
  /// That a set is going to be saved.
  virtual void begins(const SetName& name) = 0;
  /// That there is nothing to do for the moment. Called several times a second.
  virtual void rests(const SetTracker& sets) = 0;
};

/// A set that is whole, as far as was seen.
struct SetToSave : FoundSet {
  /// busy: it is not as it was found any more, as its program goes on with it.
  std::function<Status()> check_as_found;
};

/// What a watcher does with sets.
struct WatchDuty {
  /// Saves a set, if it is as it was found when all of it was read, just before the commit. busy: the set changes yet,
  /// or others are not there yet; it is waited for.
  std::function<Result<SaveReport>(const SetToSave&, const SetName&, ProgressSink&)> save{};
  /// Others save the set together with this watcher, each what it finds: the set has more files than are found here.
  bool saves_with_others = false;
  /// Has a set, which is in the store, brought to wherever else it is to be; OK once it is there. Until then its
  /// originals stay, and it is asked for again. Empty: it is to be nowhere else.
  std::function<Status(const SetName&, ProgressSink&)> bring_along{};
  /// A store that has the set; null: none has. A failure: none is known to, but not all could be asked. Empty: none but
  /// the one that is saved to.
  std::function<Result<const Store*>(const SetName&)> find{};
};

/// Saves the sets that a program leaves in folders, each as soon as it is whole; those that were left while no watcher
/// ran, too. Never writes into the folders, but to remove what is in the store, byte for byte, if told to. One thread.
class Watcher {
 public:
  /// `store` is where the sets get, and is only read here. All that is given outlives the watcher. invalid_argument:
  /// something about the folders makes no sense.
  static Result<std::unique_ptr<Watcher>> open(const Store& store, WatchOptions options, WatchDuty duty,
                                               WatchListener& listener);

  /// Watches until `progress` is cancelled; or, with `once`, until all that is whole is saved, without waiting for the
  /// rest. What fails for one set is told, and tried again; a folder that cannot be read ends it.
  Status run(bool once, ProgressSink& progress);

  /// The watched folders, without links and dots.
  std::vector<std::string> folders() const;
  /// Whether there was a set at the last look, saved or not.
  bool has_found_any() const { return !tracker_.entries().empty(); }

 private:
  Watcher(const Store& store, WatchOptions options, WatchDuty duty, WatchListener& listener, FolderEvents events);

  Status look_everywhere(ProgressSink& progress);
  Status look(size_t where, bool everything, ProgressSink& progress);
  Result<std::vector<FoundSet>> look_into_folders(size_t where, bool everything, ProgressSink& progress);
  /// As far as the system has told.
  bool may_have_changed(const std::string& folder) const;
  void note(const FolderEvents::Changes& changes);

  /// Whether a set is there of which only time shows whether it is whole.
  bool anything_to_wait_for() const;
  void serve_due(ProgressSink& progress);
  Status serve(SetTracker::Entry& entry, ProgressSink& progress);
  /// The set as it is now.
  Result<FoundSet> look_again(const FoundSet& found, ProgressSink& progress) const;
  /// busy: it is not what was found, or has more files.
  Status check_as_found(const FoundSet& found) const;
  /// Whether it need not be saved, being in a store: none, if it has to wait, or was settled otherwise.
  Result<std::optional<bool>> is_saved(SetTracker::Entry& entry);
  Status save(SetTracker::Entry& entry, ProgressSink& progress);
  Result<const Store*> find(const SetName& name) const;
  /// Where the set is, if it is anywhere: it may have left the store that it was saved to for a farther level.
  const Store& store_of(const SetName& name) const;
  /// What lies there now, compared with the set of that name; none: no store is known to have it.
  Result<std::optional<FolderMatch>> match_with(const SetName& name, const FoundSet& found) const;
  /// The same of a set that may be in the store under another name, which the entry has then: of a time that was saved
  /// as a count, before the job had times; or of one that goes by time, which the job's newest is to be compared with.
  Result<std::optional<FolderMatch>> match_with_saved(SetTracker::Entry& entry) const;
  Result<std::optional<FolderMatch>> match_with_count(SetTracker::Entry& entry) const;
  Result<std::optional<FolderMatch>> match_with_newest(SetTracker::Entry& entry) const;
  /// Whether the set is at all levels that it is due to, by now.
  Status bring_along(const SetName& name, ProgressSink& progress) const;
  Status remove(SetTracker::Entry& entry, ProgressSink& progress);
  const SetFinder& finder_of(const FoundSet& set) const;

  const Store& store_;
  const WatchOptions options_;
  const WatchDuty duty_;
  WatchListener& listener_;
  FolderEvents events_;
  std::vector<SetFinder> finders_;  ///< one for each watched folder
  std::vector<std::string> jobs_;   ///< likewise
  SetTracker tracker_;
  std::set<std::string> changed_;  ///< folders of which the system told since they were looked at
  bool lost_ = true;               ///< what has changed is not known
  bool warned_of_kept_ = false;    ///< that originals cannot be removed, as nobody knows whether they are closed
};

}  // namespace varve
