#pragma once

#include <string>
#include <vector>

#include "aggregate/source.h"
#include "core/progress.h"
#include "store/catalog.h"

namespace varve {

enum class FolderMatch : uint8_t {
  whole,    ///< the set has these files, and no others
  part,     ///< it has these files, and more
  differs,  ///< some of these it has not, or otherwise
};

/// Whether a set has `files`, as scan_source_tree() finds them: by paths, types, sizes, modes, times and link targets.
/// Folders count by their paths alone, for their times change with what is in them. Reads trees, but no data.
Result<FolderMatch> match_folder(const Store& store, const SetRecord& record, const std::vector<SourceFile>& files);

/// Reads `files` of `folder` and what a set has of them, and compares all bytes. corrupt: a file differs, or the set
/// lacks it, or it cannot be read back. Progress is in raw bytes.
Status check_saved(const Store& store, const SetRecord& record, const std::string& folder,
                   const std::vector<SourceFile>& files, ProgressSink& progress = null_progress());

}  // namespace varve
