#pragma once

#include "aggregate/save.h"
#include "varve/communicator.h"

namespace varve {

/// As save_folder(), with the groups spread over several processes, which all see the folder and the store. Each saves
/// its groups as a part of the set (set_part.h); the set appears when all have succeeded. What fails on one process
/// fails on all, with the same Status, and nothing appears. All processes return the same report. Memory and threads
/// are those of one process; if nothing is said about threads, the processes of a machine share its processors.
/// Warnings go to the first process's `progress`. Collective.
Result<SaveReport> save_folder_together(const Store& store, const std::string& folder, SaveOptions options,
                                        LayoutService& layouts, Communicator& ranks,
                                        ProgressSink& progress = null_progress());

}  // namespace varve
