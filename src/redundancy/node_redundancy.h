#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/file_system.h"
#include "format/set_record.h"
#include "redundancy/parity_group.h"
#include "varve/communicator.h"
#include "varve/status.h"

namespace varve {

// Redundancy over the node-local stores of a job: what rebuild.h does for folders of flat names, for the sets
// of stores (FORMAT.md, "Redundancy of node-local stores").
//
// All functions are collective over `leaders`, a communicator of one rank for each node; all ranks of it call them with
// the same arguments but for their NodePlace, and all get the same outcome. Nobody waits for a node that has failed:
// what goes wrong on one is agreed on by all. They use messages (of its tags 0 and 1) where the communicator is
// concurrent(), and else collective calls alone, and may run on any thread that has `leaders` for itself. A rank
// without a store of its own (NodePlace::path is empty) may take part; it has nothing to say.
//
// Not two at a time of one job on one store, but beside saves and restores of other sets, and what other jobs do there.
// What is protected stays whole only while the arenas do: a prune rewrites none of a store that has redundancy.

/// A node's store.
struct NodePlace {
  FileSystem* fs = nullptr;  ///< outlives the call
  std::string path;          ///< of the store
  std::string node;          ///< the node's name; all differ
};

struct ProtectionReport {
  uint32_t group_count = 0;      ///< failure groups
  uint32_t node_count = 0;       ///< in all of them
  uint64_t protected_bytes = 0;  ///< of all nodes: header, record and arenas
  uint64_t parity_bytes = 0;     ///< that all nodes keep for them
};

/// Protects a set that all nodes have: makes the redundancy files of all that it needs, durably. Each protected set
/// stands for itself, also if it shares arenas with others. OK only if the set is protected on all nodes; else the
/// failure of the first node that had one, and what was protected before still is, but for another protection of this
/// very set.
///
/// invalid_argument: too few nodes for the scheme, or two of one name. not_found: a node does not have the set. busy:
/// prunes took a node for dead meanwhile, time and again.
Result<ProtectionReport> protect_set(Communicator& leaders, const NodePlace& place, const SetName& set,
                                     const Redundancy& redundancy);

struct RestoreLostOptions {
  /// Only sets of this job; empty: of all.
  std::string job{};
  /// Read all that is protected, so that damage is found too; else only what is missing or of another length counts as
  /// lost.
  bool read_everything = true;
};

struct RestoredSet {
  SetName set;
  /// OK: the set is whole on all nodes, and protected. not_found: more is lost than can be rebuilt. corrupt: redundancy
  /// files contradict each other. already_exists: a node's store has something else in the place of what was lost,
  /// which is left alone. Or why a node could not rebuild what it lost.
  Status status;
  /// What was rebuilt, a line for each node ("node b was rebuilt: 3 files, 1.20 GiB, from nodes a, c"); none if nothing
  /// was lost.
  std::vector<std::string> rebuilt;
  /// So many nodes fewer have a store than protected the set: nobody is there for these.
  uint64_t nodes_missing = 0;
};

/// Looks for what is lost of protected sets, the newest first, and rebuilds it durably: files that are damaged or
/// missing, and all of a node whose folder is empty, which may have another name. Nodes may come in another order: each
/// has the position that its folder tells; one whose folder is empty or missing takes one that nobody has. To be called
/// before the stores are opened, and before damaged arenas are condemned: a prune takes those away, repaired or not.
///
/// A set is rebuilt wholly or not at all: if more is lost than one of its failure groups can rebuild, nothing is
/// changed, and its status says so. In a store, what is rebuilt appears in order (header, arenas, records), so that a
/// crash leaves no set that is not whole. A valid header is never replaced by another one, unless the store was there,
/// and empty, from the beginning; nor a valid record, unless its set was made before the protected one
/// (SetRecord::number), on a node that was away since.
///
/// Fails only if the nodes cannot talk, or a node cannot list its store.
Result<std::vector<RestoredSet>> restore_lost(Communicator& leaders, const NodePlace& place,
                                              const RestoreLostOptions& options = {});

/// Gives up the redundancy of older sets of `job`: those than which `keep` others are newer that are protected on all
/// nodes, where newer is what has a higher step and was made later, and was not left behind (`is_left_behind`, by step,
/// as some node knows); and of sets that no node has any more. Durable when it returns. Returns what was given up.
Result<std::vector<SetName>> retain_redundancy(Communicator& leaders, const NodePlace& place, const std::string& job,
                                               uint64_t keep, const std::function<bool(uint64_t)>& is_left_behind = {});

/// Gives up a node's redundancy of one set, durably; OK if there is none. Not collective. Before a set is dropped: what
/// is dropped only on some nodes counts as lost there, and would be rebuilt.
Status drop_redundancy(const NodePlace& place, const SetName& set);

/// The sets whose redundancy folders a node's store has; of one job only, unless it is empty. None if there is no
/// store.
Result<std::vector<SetName>> list_redundancy(const NodePlace& place, const std::string& job);

/// All that any of the leaders gave, the newest first; the same on all. Collective.
Result<std::vector<SetName>> unite_sets(Communicator& leaders, const std::vector<SetName>& mine);

/// Removes what stopped rebuilds have left in a store, of this job (empty: of any), or of one that has been silent for
/// an hour: unfinished files, folders with nothing in them, and, unless another job has something there, the folders of
/// a store that did not come into being. OK if there is none.
Status tidy_redundancy(const NodePlace& place, const std::string& job);

/// Nodes that protect each other. A node's position is its index here.
struct FailureGroup {
  std::vector<uint32_t> nodes{};  ///< ordinals in FailureGroups::nodes, ascending
  bool operator==(const FailureGroup&) const = default;
};

/// Which nodes protect each other: every node is in exactly one group.
struct FailureGroups {
  /// Where a node is found.
  struct Place {
    uint32_t group = 0;
    uint32_t position = 0;  ///< in the group
    bool operator==(const Place&) const = default;
  };
  std::vector<std::string> nodes;      ///< in the order of their first ranks
  std::vector<uint32_t> node_of_rank;  ///< ordinals in `nodes`
  std::vector<FailureGroup> groups;
  std::vector<Place> place_of_node;

  bool operator==(const FailureGroups&) const = default;
};

/// Plans the groups from the node of each rank (or of each leader); the same texts give the same plan on all ranks.
///
/// As many groups as can have redundancy.nodes_min() nodes; those that are left over join groups, one each as far as
/// possible, so that groups differ by at most one node unless there is only one. A group of more nodes than its code
/// has parts spreads the parts (parity_group.h). The nodes of a group lie far from each other in the order of ranks,
/// since neighbours tend to fail together: they share a switch or a power supply.
///
/// invalid_argument if there are fewer nodes than one group needs.
Result<FailureGroups> plan_failure_groups(std::span<const std::string> node_of_rank, const Redundancy& redundancy);

}  // namespace varve
