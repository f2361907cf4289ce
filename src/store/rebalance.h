#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/progress.h"
#include "store/commit.h"
#include "store/spread.h"

namespace varve {

/// Something that lies at a place as a whole, such as an arena.
struct Load {
  uint64_t bytes = 0;
  uint32_t place = 0;
};

/// Where each load should lie, so that all places have about the same bytes; few bytes move. At the end no place has
/// more than another one by more than its own smallest load: nothing is left that could be moved and would make it
/// better; so from there no move is planned. Loads of no bytes stay.
std::vector<uint32_t> balanced_places(std::span<const Load> loads, uint32_t places);

/// Evens out what the places of a store have, by moving arenas (FORMAT.md, "Several places"). What is moved is copied
/// into an arena of another name, the old one is marked, and a prune removes it as it removes all others: so nothing
/// goes that somebody may have come to rely on, however long this one was stopped and whoever went on meanwhile. Two
/// movers at a time would copy the same twice: so one has a lease whose id says what it is, and gives way to another
/// such lease that shows signs of life.
class ArenaMover {
 public:
  /// `places` are those of the store, in their order; all outlive it.
  ArenaMover(const Store& store, const std::vector<Backend*>& places, const RebalanceOptions& options,
             ProgressSink& progress)
      : store_(store), places_(places), options_(options), progress_(progress) {}

  /// busy: another one is at work.
  Result<RebalanceReport> run();

 private:
  struct Arena {
    ArenaId id;
    uint32_t place = 0;
    uint64_t bytes = 0;
    bool operator==(const Arena&) const = default;
  };
  struct Listed {
    std::vector<Arena> arenas;  ///< without marked ones
    std::set<ArenaId> twins;    ///< that lie at two places
    bool any_marked = false;
  };
  Status become_sole_mover();
  Status wait_for_silence(const std::string& lease);
  Result<Listed> list() const;
  Status move_all(const Listed& listed, RebalanceReport& report);
  Result<bool> move(const Arena& arena, uint32_t to);
  Status copy(const ArenaReader& arena, uint32_t to);
  Status remove_marked(RebalanceReport& report);
  std::string arenas_of(uint32_t place) const { return join_path(places_[place]->root(), "arenas"); }

  const Store& store_;
  const std::vector<Backend*>& places_;
  const RebalanceOptions options_;
  ProgressSink& progress_;
  std::unique_ptr<WriterLease> lease_;         ///< says that arenas are being moved
  std::unique_ptr<WriterLease> copies_lease_;  ///< to which the copies belong
  uint32_t copy_count_ = 0;
};

}  // namespace varve
