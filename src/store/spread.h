#pragma once

#include <string>
#include <vector>

#include "backend/spread_backend.h"
#include "core/progress.h"
#include "store/commit.h"
#include "store/store.h"

namespace varve {

// A store that is spread over several places, such as servers: how it is made, opened and grown. Place 0 has the
// catalog, the leases and the marks; every place has the store's header, arenas, and a file that says which place it is
// (SpreadMember), so that nobody takes it for a store of its own, and loses what the others have. SpreadBackend makes
// one backend of the places, in their order.

/// Makes a store over `places`, in this order. already_exists if one of them has anything in its folder,
/// invalid_argument if two are the same: nothing is written then.
Status create_spread_store(const std::vector<Backend*>& places, CreateStoreOptions options = {});

/// Brings places that were named in any order into theirs. A single place may be a usual store. For several that have
/// nothing yet, the order stays: a store may be made over them. invalid_argument: they are not all the places of one
/// store.
Result<std::vector<Backend*>> order_places(const std::vector<Backend*>& places);

struct RebalanceReport {
  uint64_t moved_arenas = 0, moved_bytes = 0;
  /// Were moved, but also are where they were, as a writer at work may refer to them: the next prune removes them.
  uint64_t waiting_arenas = 0;
  uint64_t arenas = 0, bytes = 0;  ///< all others, where they are now
  std::vector<uint64_t>
      bytes_of_places;  ///< of these, in the order of the places, which is that of order_places() from now on
};

struct RebalanceOptions {
  /// As long without a sign of life, another one that moves arenas, or a writer, is taken for dead.
  double silence_seconds = kLeaseSilenceSeconds;
  /// How long to wait in the end for writers at work.
  double wait_seconds = 30;
};

/// Spreads a store over more places: `places` are all that it has, in any order, and new ones, whose folders are empty
/// or missing. Then moves arenas, with new places or without, until all have about the same bytes (rebalance.h); arenas
/// stay whole. Each is durable where it goes, under another name, before it is marked where it was, and removed as a
/// prune removes arenas. May be stopped at any time, and done again; busy if another one is at work. Who has opened the
/// store with fewer places goes on without harm, but may not find what has moved: it fails, and has to open it anew. It
/// prunes nothing any more.
Result<RebalanceReport> rebalance(const std::vector<Backend*>& places, const RebalanceOptions& options = {},
                                  ProgressSink& progress = null_progress());

}  // namespace varve
