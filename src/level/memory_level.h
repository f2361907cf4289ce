#pragma once

#include <string>

#include "level/level_spec.h"
#include "snapshot/shared_segment.h"

namespace varve {

/// By what a job's snapshots are found in the memory of a node: by where the job saves. `nearest`: the first level that
/// holds sets, at `path` (LevelStore::prepare(); of no matter for a node's own); `node`: as VARVE_NODE says, or empty.
SegmentFamily job_memory(const std::string& shared_memory, const std::string& job, const LevelSpec& nearest,
                         const std::string& path, const std::string& node);

}  // namespace varve
