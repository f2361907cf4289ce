#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/progress.h"
#include "engine/stored_files.h"
#include "varve/communicator.h"

namespace varve {

struct RestoreOptions {
  FileFilter filter;
  bool overwrite = false;   ///< replace files that are there already (else already_exists, and nothing is done)
  bool keep_going = false;  ///< restore what is whole if something is damaged (else nothing appears)
  bool sync = true;         ///< durable when it returns
  uint64_t memory_bytes = 512_MiB;
  uint32_t thread_count = 0;  ///< 0: enough to keep processors and disk busy
};

struct RestoreReport {
  SetName set;
  uint64_t file_count = 0;              ///< files, folders and links that were put there
  uint64_t raw_bytes = 0;               ///< of regular files
  uint64_t read_bytes = 0;              ///< of packs, as stored
  std::vector<std::string> lost_files;  ///< with keep_going: what could not be restored
  uint64_t lost_leaf_count = 0;         ///< with keep_going: parts of the set's tree that cannot be read
  uint64_t unnamed_file_count = 0;      ///< files that these list, as far as that is known

  bool whole() const { return lost_files.empty() && lost_leaf_count == 0; }
};

/// Puts a set's files below `folder` (created if need be), byte for byte, with modes and times. Every byte is verified
/// first; files are written under temporary names in a folder of their own and renamed at the end, so that a failure
/// leaves no wrong file. Nothing is ever written outside `folder`, whatever the store says and whatever links lie in
/// it.
Result<RestoreReport> restore_set(const Store& store, const SetName& name, const std::string& folder,
                                  const RestoreOptions& options, ProgressSink& progress = null_progress());

/// The same with the files spread over several processes, which all see the folder and the store. No file gets its
/// name before all processes have staged theirs; what fails on one fails on all, with the same Status. The first
/// process says by `name` what is restored. All return the same report. Memory and threads are those of one process.
/// Warnings go to the first process's `progress`. Collective.
Result<RestoreReport> restore_set_together(const Store& store, const SetName& name, const std::string& folder,
                                           RestoreOptions options, Communicator& ranks,
                                           ProgressSink& progress = null_progress());

}  // namespace varve
