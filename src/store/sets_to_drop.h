#pragma once

#include <string>
#include <vector>

#include "core/progress.h"
#include "format/set_record.h"
#include "store/keep_rules.h"
#include "store/store.h"

namespace varve {

/// A set that no rule keeps, as it was when that was found.
struct LeavingSet {
  SetName name;
  uint64_t number = 0;    ///< SetRecord::number
  int64_t created_s = 0;  ///< SetRecord::created_s
};

/// The sets that no rule keeps, sorted; only those of `job`, unless that is empty. Pinned sets, the newest of each job
/// (KeepRules), those whose record cannot be read, and those of one node's ranks alone are not among them.
Result<std::vector<LeavingSet>> sets_to_drop(const Store& store, const KeepRules& keep, const std::string& job,
                                             ProgressSink& progress);

}  // namespace varve
