#pragma once

#include <map>
#include <set>
#include <string>

#include "core/progress.h"
#include "store/store.h"

namespace varve {

/// Whom something in a store serves: sets, and parts of sets, and their files.
struct Users {
  std::set<std::string> sets;   ///< "job@3", "job@4 (part 1 of 2)"
  std::set<std::string> files;  ///< "job@3:path", kAffectedFilesMax at most
  void add(const std::string& set, const std::string& path);
  void add(const Users& more);
};
inline constexpr size_t kAffectedFilesMax = 100;

/// Who needs chunks of `packs` (with an arena where each should be) that are whole in no arena: for each pack that has
/// such users, who these are. Reads all copies of those packs, and goes through the trees of all sets and parts; of
/// what cannot be read there nothing is said. Fails only if cancelled.
Result<std::map<Score, Users>> users_of_lost_chunks(const Store& store, const std::map<Score, ArenaId>& packs,
                                                    ProgressSink& progress);

}  // namespace varve
