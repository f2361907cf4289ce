#pragma once

#include <string>
#include <vector>

#include "store/set_record.h"
#include "store/store.h"

namespace varve {

/// The names (node_folder.h) of all files that a store needs to have this set: its header, the set's record, and the
/// arenas that hold what the set refers to, whichever set they were written for. Goes through the set's trees.
/// not_found if there is no such set, or if something that it needs is nowhere.
Result<std::vector<std::string>> protected_files_of(const Store& store, const SetName& set);

}  // namespace varve
