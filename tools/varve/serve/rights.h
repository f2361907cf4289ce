#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "core/sync.h"
#include "core/unique_id.h"
#include "service/protocol.h"

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
  record,        ///< sets/JOB/STEP.set
  record_aside,  ///< sets/JOB/STEP.set.HASH.ID.aside
  part,
  part_failure,  ///< that a part will not come
  arena,
  arena_draft,
  lease,
  mark,  ///< condemned/ID
  index_run,
  index_draft,
  pinning,  ///< remarks/JOB@STEP.pinning.ID, which becomes a pin
  remark,   ///< what else is in remarks/
  remark_draft,
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

/// Which client has made a file that is not complete yet, so that nobody else takes it away. Knows the newest names
/// only, and those that were made since the server was started. Thread-safe.
class OwnNames {
 public:
  void note(const std::string& path, const UniqueId& client);
  bool is_of(const std::string& path, const UniqueId& client) const;
  void forget(const std::string& path);

  /// Of paths, by who decides by the owners of what they name, until what he does then is done, and noted: whoever
  /// claims one of them, too, waits. Others do not: it may take a minute where the store is in a bucket. All that a
  /// request needs is claimed at once, so that no two wait for one another.
  class Claim {
   public:
    Claim(OwnNames& names, std::set<std::string> paths);
    ~Claim();
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;

   private:
    OwnNames& names_;
    const std::set<std::string> paths_;
  };

 private:
  static constexpr size_t kNamesMax = 65'536;

  bool is_claimed(const std::set<std::string>& paths) const VARVE_REQUIRES(mutex_);

  mutable Mutex mutex_;
  ConditionVariable unclaimed_;
  std::set<std::string> claimed_ VARVE_GUARDED_BY(mutex_);
  std::map<std::string, UniqueId> owners_ VARVE_GUARDED_BY(mutex_);
  std::deque<std::string> oldest_ VARVE_GUARDED_BY(mutex_);  ///< some may have been forgotten
};

/// What the clients who show a key may do (PROTOCOL.md, "Rights").
enum class Rights : uint8_t {
  all,     ///< whatever a store needs
  append,  ///< add to the store, and take away nothing but what is one's own and unfinished
  read,    ///< look
};

std::string_view name_of(Rights rights);
/// Of "all", "append" or "read"; invalid_argument otherwise.
Result<Rights> parse_rights(std::string_view text);

/// Whether a request may be made at all, by what it asks for and the names in it: nobody may do what no writer of a
/// store needs, such as renaming a sealed arena. permission_denied, which says what right is lacking. Whose a name is,
/// and what lies there, is looked at by RequestHandler.
Status check_allowed(Rights rights, const AnyRequest& request);

}  // namespace varve
