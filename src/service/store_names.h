#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace varve {

/// What a name in the folder of a store is of (FORMAT.md, "The folder of a store").
enum class StoreName : uint8_t {
  none,          ///< not of a store
  root,          ///< the empty path
  folder,        ///< sets, parts, arenas, ...
  job_folder,    ///< sets/JOB
  header,        ///< varve.store
  header_draft,  ///< that is being written
  spread,        ///< varve.spread
  spread_draft,
  record,  ///< sets/JOB/STEP.set
  part,
  part_failure,  ///< that a part will not come
  arena,
  arena_draft,
  lease,
  mark,  ///< condemned/ID
  index_run,
  index_draft,
  run_file,  ///< of the lease of a job's run, which any run may take over
};

StoreName store_name_of(std::string_view path);

/// Of a part: the path of the record of its set.
std::string record_of_part(std::string_view path);

/// Whether a file of that name is not complete yet: its writer's alone.
bool is_draft(StoreName name);

/// Whether `path`, relative to a store's root, is of a form that the folder of a store has (FORMAT.md, "The folder of a
/// store"), or that of one of its folders ("" is the root): nothing else is served. Such a path has no "." or ".." and
/// cannot leave the folder by itself.
bool is_store_path(std::string_view path);

/// Whether `path` can be of any file below a folder: for tests.
bool is_plain_path(std::string_view path);

}  // namespace varve
