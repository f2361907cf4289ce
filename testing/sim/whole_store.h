#pragma once

#include <cstdint>

#include "store/store.h"

namespace varve::sim {

/// Prunes a store that nobody uses, and fails if that leaves anything that no set needs: leases, marks, or arenas that
/// are larger than those of a fresh store with the same sets, by 5 % and what describes the sets, which is
/// `overhead_bytes` for each at most.
void check_one_prune(const Store& store, uint64_t overhead_bytes);

/// Fails if anything that a set needs is damaged.
void check_is_whole(const Store& store);

}  // namespace varve::sim
