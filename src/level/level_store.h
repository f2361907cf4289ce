#pragma once

#include <memory>
#include <string>

#include "core/clock.h"
#include "core/file_system.h"
#include "level/level_spec.h"
#include "service/location.h"
#include "store/store.h"

namespace varve {

/// The store of a level, as one process has it open. Thread-safe, as stores are.
class LevelStore {
 public:
  /// Where the level is, for a rank on a node of this name; `node` is empty unless VARVE_NODE says it: nodes that are
  /// named so may be on one machine, and each has a folder of its own.
  static std::string path_of(const LevelSpec& spec, const std::string& node);
  /// Makes the folder that `path` is to be in, if it is one that path_of() has added.
  static Status prepare_parent(FileSystem& files, const LevelSpec& spec, const std::string& path);
  /// Makes the level if it is not there, and says by which path it is known from everywhere. For one rank of those that
  /// see it. `key_file`: of servers.
  static Result<std::string> prepare(FileSystem& files, const LevelSpec& spec, const std::string& path,
                                     const std::string& key_file);
  /// The same, of a level that is there.
  static std::string known_path(const LevelSpec& spec, const std::string& path);
  /// Opens what was prepared. `files` and `clock` outlive it.
  static Result<std::unique_ptr<LevelStore>> open(FileSystem& files, const LevelSpec& spec, const std::string& path,
                                                  const std::string& key_file, Clock& clock);

  /// Whether a level that failed so is out of reach, and may be there again later, rather than named wrongly.
  static bool is_away(const Status& failure);

  /// For reading.
  const Store& store() const { return *store_; }
  /// For writing, no faster than the level allows. For one thread's work, as it is slowed as a whole.
  const Store& slowed() const { return slowed_ ? *slowed_ : *store_; }

 private:
  explicit LevelStore(std::unique_ptr<StorePlace> place) : place_(std::move(place)) {}

  const std::unique_ptr<StorePlace> place_;  ///< on servers; none: a folder
  std::unique_ptr<FileSystem> throttled_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Store> slowed_;  ///< if there is a limit
};

}  // namespace varve
