#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/sync.h"
#include "format/set_record.h"
#include "watch/set_finder.h"

namespace varve {

/// What must be there before a set is whole, besides that nothing changes any more.
struct Completeness {
  uint64_t rank_count = 0;  ///< files of so many ranks; 0: any
  /// A file of this name, in the set's folder; `{step}` in it stands for the step. One that is older than a file of the
  /// set was left by an earlier run, and does not count. Empty: none is needed.
  std::string end_marker;

  bool asks_for_something() const { return rank_count > 0 || !end_marker.empty(); }
  /// What is lacking yet, for people; empty: nothing.
  Result<std::string> lacking(const FoundSet& set) const;
  /// How long nothing must change from now on, so that files of a run that was killed do not make up the number of
  /// ranks for one that goes over the same step again: as long as all took to be written, ten minutes at most. Of a set
  /// that was there before anybody looked, from when the last of them was written, if it is `now_s` now, in seconds
  /// since 1970; what changes under our eyes is not to depend on whether two clocks agree.
  std::chrono::milliseconds quiet_from(const FoundSet& set, std::optional<int64_t> now_s) const;
};

/// Which file of the set a program is writing (open_writers.h), for people; empty: none.
Result<std::string> being_written(const FoundSet& set);

/// Whether nothing has changed from one look at a set's files to the next.
bool are_unchanged(const std::vector<SourceFile>& before, const std::vector<SourceFile>& after);

/// What has become of a set in a watched folder.
enum class WatchState : uint8_t {
  waiting,  ///< it changes, or is not whole yet
  saved,    ///< it is in the store
  differs,  ///< the store has another set of that name
  failed,   ///< it could not be saved; it is tried again
};

/// Remembers what lies in the watched folders, and since when each set is as it is. Knows neither the disk nor the
/// clock. One thread.
class SetTracker {
 public:
  using Clock = MonotonicClock;
  using Time = Clock::time_point;

  struct Entry {
    FoundSet found;
    SetName name;
    WatchState state = WatchState::waiting;
    Time due;             ///< waiting, failed: when to look at it
    std::string lacking;  ///< waiting: why, as far as is known
    Status failure;       ///< failed, differs
    std::chrono::milliseconds pause{0};
  };

  using QuietOf = std::function<std::chrono::milliseconds(const FoundSet&, bool has_changed)>;
  /// Each set is to be quiet for `quiet`, or for what `longer` says of it, and of whether it was seen before as it was
  /// then.
  explicit SetTracker(std::chrono::milliseconds quiet, QuietOf longer = {})
      : quiet_(quiet), longer_(std::move(longer)) {}

  /// That these sets, and no others, lie in the watched folder number `where`. One that has changed since the last
  /// call, or is new, is due once nothing has changed for the quiet time.
  void update(size_t where, const std::string& job, std::vector<FoundSet> sets, Time now);
  /// That one set is found like this. Returns whether it is as it was.
  bool update(Entry& entry, FoundSet found, Time now);

  /// The set that is due first, if it is due by now; the smallest step of several. Null: none.
  Entry* next_due(Time now);
  /// When next_due() may have something to say; `latest` if not before.
  Time next_time(Time latest) const;

  /// What became of a due set. Waiting ones are looked at again after the quiet time, or `pause` if that is longer;
  /// failed ones ever more seldom.
  void wait(Entry& entry, std::string lacking, Time now, std::chrono::milliseconds pause = {});
  void fail(Entry& entry, Status why, Time now);
  static void settle(Entry& entry, WatchState state, Status why = {});

  /// By watched folder, step (0 if it changes with the set) and the set's folder.
  using Key = std::tuple<size_t, uint64_t, std::string>;
  const std::map<Key, Entry>& entries() const { return entries_; }
  /// Null: there is none.
  const Entry* find(size_t where, const FoundSet& set) const;

 private:
  Time due_after(const FoundSet& set, bool has_changed, Time now) const;

  const std::chrono::milliseconds quiet_;
  const QuietOf longer_;
  std::map<Key, Entry> entries_;
};

}  // namespace varve
