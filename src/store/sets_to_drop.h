#pragma once

#include <string>
#include <vector>

#include "core/progress.h"
#include "format/set_record.h"
#include "store/keep_rules.h"
#include "store/store.h"

namespace varve {

/// The sets that no rule keeps, sorted; only those of `job`, unless that is empty. Pinned sets and the newest of each
/// job are not among them.
Result<std::vector<SetName>> sets_to_drop(const Store& store, const KeepRules& keep, const std::string& job,
                                          ProgressSink& progress);

}  // namespace varve
