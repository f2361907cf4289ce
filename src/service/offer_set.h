#pragma once

#include <string>

#include "aggregate/save.h"
#include "aggregate/source.h"
#include "core/progress.h"
#include "service/server_link.h"

namespace varve {

struct SetOffer {
  SetName name;
  std::string node;         ///< a name of its own for each node
  uint64_t node_count = 1;  ///< of the set, which is saved once all have offered their files
  SaveOptions options;      ///< how it is saved; the same on all nodes
};

/// Offers the files of `source` to a server, which saves them together with those of the other nodes: the server pulls
/// what it needs, in the order in which it lays it down, and has its own memory bound. Returns when the set is
/// committed, or not: nothing is visible then. busy: a node is missing, has gone away, or has changed its files; offer
/// the set again. already_exists: it was saved before.
Status offer_set(ServerLink& link, const SetOffer& offer, Source& source, ProgressSink& progress = null_progress());

}  // namespace varve
