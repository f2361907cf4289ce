#pragma once

#include "level/levels.h"
#include "varve/status.h"

namespace varve {

/// In the nodes' own stores: makes the sets that the nodes have all of, in parts on some and made already on others, in
/// the place of older ones of their steps. A run that makes a step anew leaves the old set on each node until all have
/// their parts, and it, or a node, may have ended before all had replaced theirs. What cannot be made is a warning.
/// While nothing of the job is on its way: an older set could take a new one's place. Collective.
Status complete_left_parts(const Levels& levels);

/// Removes all parts of a set, so that nobody makes it of them any more; while nothing of the job is on its way.
/// Durable when it returns.
Status remove_left_parts(const Store& store, const SetName& name);

}  // namespace varve
