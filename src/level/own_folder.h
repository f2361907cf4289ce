#pragma once

#include <string>

#include "core/file_system.h"
#include "core/unique_id.h"
#include "level/level.h"
#include "varve/communicator.h"

namespace varve {

/// invalid_argument, on all ranks, if two nodes see the same folder where each should have its own: a path on a file
/// system that they share was taken for a local one. `store` is the path of each node's store, which is there; `run`
/// names the run. Collective.
Status check_own_folders(Communicator& ranks, const RankSeat& seat, FileSystem& files, const std::string& store,
                         const UniqueId& run);

}  // namespace varve
