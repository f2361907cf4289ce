#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/progress.h"
#include "store/spread.h"
#include "store/writer_lease.h"

namespace varve {

/// Whether it is the lease of one that moves arenas.
bool is_mover_lease(std::string_view lease_name);

/// Evens out what the places of a store have, by moving arenas (FORMAT.md, "Several places"). Only one is at work on a
/// store at a time: two with different plans could each remove the copy that the other one keeps. So it has a lease
/// whose id says what it is, and gives way to another such lease that shows signs of life.
class ArenaMover {
 public:
  /// `places` are those of the store, in their order; all outlive it.
  ArenaMover(const Store& store, const std::vector<SpreadPlace>& places, const RebalanceOptions& options,
             ProgressSink& progress)
      : store_(store), places_(places), options_(options), progress_(progress) {}

  /// busy: another one is at work.
  Result<RebalanceReport> run();

 private:
  struct Arena {
    ArenaId id;
    uint32_t place = 0;
    uint64_t bytes = 0;
    bool fixed = false;  ///< not to be touched
  };
  Status become_sole_mover();
  Status wait_for_silence(const std::string& lease);
  Result<std::vector<Arena>> list() const;
  Result<std::vector<Arena>> without_copies(std::vector<Arena> listed);
  Status move(const Arena& arena, uint32_t to);
  Status copy(File& source, FileSystem& to, const std::string& part, const std::string& path, uint64_t bytes) const;
  Status check_same(const ArenaId& id, uint32_t place, uint32_t other) const;
  Status remove_at(const ArenaId& id, uint32_t place) const;
  std::string arenas_of(uint32_t place) const { return join_path(places_[place].path, "arenas"); }
  std::string path_at(const ArenaId& id, uint32_t place) const;

  const Store& store_;
  const std::vector<SpreadPlace>& places_;
  const RebalanceOptions options_;
  ProgressSink& progress_;
  std::unique_ptr<WriterLease> lease_;
};

}  // namespace varve
