#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "core/bytes.h"
#include "core/sync.h"
#include "varve/status.h"

namespace varve {

/// Blocks of objects that are far away and never change, up to so many bytes in memory; those used last stay.
/// Thread-safe.
class BlockCache {
 public:
  using Block = std::shared_ptr<const ByteVector>;
  explicit BlockCache(uint64_t bytes_max) : bytes_max_(bytes_max) {}

  /// A block of the object: what `fetch` returns, if it is not here. Of several who want it at the same time, one
  /// fetches it. `key` has no blanks; `version` tells apart what has had this key at different times.
  Result<Block> get(const std::string& key, const std::string& version, uint64_t number,
                    const std::function<Result<ByteVector>()>& fetch);
  void add(const std::string& key, const std::string& version, uint64_t number, ByteVector bytes);
  /// Whether there is a block of any version.
  bool has_some_of(const std::string& key) const;

 private:
  using Name = std::pair<std::string, uint64_t>;  ///< of a block: key and version, with a blank between them
  struct Cached {
    Block block;
    std::list<Name>::iterator used;
  };
  Block find_locked(const Name& name) VARVE_REQUIRES(mutex_);
  Block add_locked(const Name& name, ByteVector bytes) VARVE_REQUIRES(mutex_);

  const uint64_t bytes_max_;
  mutable Mutex mutex_;
  ConditionVariable fetched_;
  std::set<Name> fetching_ VARVE_GUARDED_BY(mutex_);
  std::map<Name, Cached> blocks_ VARVE_GUARDED_BY(mutex_);
  std::list<Name> used_ VARVE_GUARDED_BY(mutex_);  ///< last used first
  uint64_t bytes_ VARVE_GUARDED_BY(mutex_) = 0;
};

}  // namespace varve
