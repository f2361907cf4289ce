#pragma once

#include <memory>

#include "core/progress.h"
#include "engine/stored_files.h"
#include "store/store.h"

namespace varve::cli {

/// Writes files of a set to standard output as a tar archive (POSIX.1-2001, pax), one after the
/// other, each byte verified first. Takes about `memory_bytes`. What fails has written a part of the archive, without
/// its end. Returns how many files, folders and links there are in it. unsupported: this build has no libarchive.
Result<uint64_t> write_tar(const Store& store, const SetName& name, const FileFilter& filter, uint64_t memory_bytes,
                           ProgressSink& progress);

}  // namespace varve::cli
