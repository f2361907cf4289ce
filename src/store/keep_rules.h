#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "format/set_record.h"

namespace varve {

/// Which sets of a job stay when others go: all that any rule names, pinned ones, and always the newest: those to which
/// none is newer (SetAge), so that what a run makes after it went back stays beside what it left behind. Without a
/// rule, all stay.
struct KeepRules {
  std::optional<uint64_t> last{};          ///< those to which fewer are newer
  std::optional<uint64_t> every{};         ///< steps that are multiples of this; of times, running numbers that are
  std::optional<uint64_t> hourly{};        ///< the newest of each of so many hours, the latest in which a set was saved
  std::optional<uint64_t> daily{};         ///< likewise of days, by UTC
  std::optional<double> within_seconds{};  ///< saved, or brought to the store, no longer ago
  std::vector<std::string> tags{};         ///< those that have one of these tags
  /// Of those that other rules keep, or of all, the newest whose packs and nodes together have no more bytes. Others
  /// that are kept anyway, pinned ones and each job's newest, count first.
  std::optional<uint64_t> bytes_max{};

  bool any() const { return go_by_sets() || bytes_max; }
  /// Whether there is a rule by which a set is kept that does not depend on sizes.
  bool go_by_sets() const { return last || every || hourly || daily || within_seconds || !tags.empty(); }
};

/// What a rule looks at.
struct AgedSet {
  uint64_t step = 0;
  uint64_t number = 0;    ///< SetRecord::number
  int64_t created_s = 0;  ///< SetRecord::created_s, by the clock of who saved it
  int64_t arrived_s = 0;  ///< when its record came to the store, by the store's clock
  bool stays = false;     ///< it is pinned, or has a tag of the rules
  bool is_known = true;   ///< else its record cannot be read, or is of one node's ranks alone: no rule counts it
};

/// The steps of those to which fewer than `count` are newer. `sets` are those of one job, in the order of their steps.
std::set<uint64_t> newest_steps(const std::vector<AgedSet>& sets, uint64_t count);

/// When each of the sets of one job was saved, as far as clocks are believed: as those of most of the five sets around
/// it say, and neither after `now_s` nor after one that has a higher number. Of one that is not known, `now_s`.
std::vector<int64_t> believed_times(const std::vector<AgedSet>& sets, int64_t now_s);

/// The steps that stay by all rules but bytes_max, of the sets of one job, which are in the order of their steps. Sets
/// count as saved at `now_s` whose clock was ahead.
std::set<uint64_t> kept_steps(const std::vector<AgedSet>& sets, const KeepRules& rules, int64_t now_s);

}  // namespace varve
