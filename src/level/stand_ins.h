#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/file_system.h"
#include "redundancy/node_redundancy.h"
#include "varve/communicator.h"
#include "varve/status.h"

namespace varve {

// Where fewer nodes are there than protected a set, what the others had is rebuilt all the same: nodes that are there
// have a store beside their own for each of those that are not, its stand-in. It is there to restart from, and goes
// with the run that needed it, or with the next one that does not.

/// The stand-ins of a job beside a node's store, which need not be there.
Result<std::vector<std::string>> list_stand_ins(FileSystem& files, const std::string& store_path,
                                                const std::string& job);

/// Removes them.
Status remove_stand_ins(FileSystem& files, const std::string& store_path, const std::string& job);

/// restore_lost() with `count` stand-ins, shared out to the nodes, beside their own stores. `leaders` are one rank for
/// each node, `nodes` their numbers in `ranks`, whose messages have tags from `first_tag` on. Collective over the
/// leaders.
Result<std::vector<RestoredSet>> restore_with_stand_ins(Communicator& ranks, uint32_t first_tag, Communicator& leaders,
                                                        const std::vector<uint32_t>& nodes, const NodePlace& place,
                                                        uint64_t count, const RestoreLostOptions& options);

}  // namespace varve
