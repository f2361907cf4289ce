#pragma once

#include <set>

#include "store/store.h"

namespace varve {

/// Marks arenas that were found damaged: no writer that begins from now on refers to them, so that what is saved anew
/// does not rest on what is broken. Nothing is removed: the next prune brings to safety what is whole and needed
/// (FORMAT.md, "Pruning"). Marked already, or gone: fine. Durable when it returns.
Status condemn_arenas(const Store& store, const std::set<ArenaId>& arenas);

}  // namespace varve
