#pragma once

#include <memory>
#include <span>
#include <vector>

#include "format/tree.h"
#include "store/store.h"

namespace varve {

// What the arenas of a store hold, whichever they are: a prune moves packs and nodes, and several arenas may have a
// copy, some of them damaged.

/// A pack or a tree node in an arena that lists it.
struct StoredCopy {
  std::shared_ptr<ArenaReader> arena;
  size_t ordinal = 0;
};
/// All copies of a pack, that of the hinted arena first; the others are looked for only if that lacks it, or if `all`.
/// Empty: no arena has it.
Result<std::vector<StoredCopy>> find_pack_copies(const Store& store, const Score& score, const ArenaId& hint,
                                                 bool all = false);
/// Whether an arena lists the pack; corrupt if none does.
Status check_pack_is_there(const Store& store, const PackLink& link);

/// A pack in which all of `ranges` are there, verified: from one arena, or put together from all that have a copy.
/// corrupt if no arena has the pack, or some chunk is whole in no copy. `room`: as Pack::decode().
Result<Pack> read_pack(const Store& store, const PackLink& link, std::span<const Extent> ranges,
                       MutableByteSpan room = {});
/// The content of a tree node, as read_pack() does.
Result<ByteVector> read_node(const Store& store, const Score& score, const ArenaId& hint);
Result<Root> read_root(const Store& store, const Score& score, const ArenaId& hint);
Result<Leaf> read_leaf(const Store& store, const LeafLink& link);

}  // namespace varve
