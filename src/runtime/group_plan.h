#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "runtime/settings.h"
#include "varve/communicator.h"
#include "varve/status.h"

namespace varve {

/// Where a rank runs. Ranks on the same node see each other's shared memory.
struct RankPlace {
  std::string node;     ///< the same text for all ranks of a node, and for no other
  uint32_t socket = 0;  ///< of the node's processors
  std::string name{};   ///< of the node, for people; several nodes may have the same
  bool operator==(const RankPlace&) const = default;
};

/// Ranks that share a checkpoint thread.
struct RankGroup {
  std::vector<uint32_t> members{};  ///< ascending, never empty
  std::vector<uint32_t> remote{};   ///< of them, those on another node than the leader
  /// The checkpoint thread is in its process.
  uint32_t leader() const { return members.front(); }
  bool operator==(const RankGroup&) const = default;
};

/// A node of the run.
struct RankNode {
  std::string name{};             ///< all differ
  std::vector<uint32_t> ranks{};  ///< ascending, never empty
  /// Speaks for the node.
  uint32_t leader() const { return ranks.front(); }
  bool operator==(const RankNode&) const = default;
};

/// Who is in whose group.
struct GroupPlan {
  std::vector<RankGroup> groups;  ///< in the order of their leaders
  uint32_t own = 0;               ///< ordinal of the group of the rank that asked
  std::vector<RankNode> nodes;    ///< in the order of their leaders
  uint32_t own_node = 0;          ///< ordinal of the node of the rank that asked
  uint32_t node_rank_count = 1;   ///< ranks on its node
  bool crosses_nodes = false;     ///< some group does
  bool concurrent = false;        ///< all ranks can send messages beside the program's
  std::vector<Status> warnings;   ///< the same on all ranks

  const RankGroup& own_group() const { return groups[own]; }
  /// Whether a rank is on another node than its leader, in the group of the rank that asked.
  bool is_remote(uint32_t rank) const;
  uint32_t count() const { return static_cast<uint32_t>(groups.size()); }
  const RankNode& node() const { return nodes[own_node]; }
  /// What people call a group: "group 2 of 4 (rank 8 on n1)".
  std::string group_name(uint32_t ordinal) const;
  /// The ordinals of the groups whose leaders are on the node of the rank that asked.
  std::vector<uint32_t> groups_of_node() const;
  /// Where the own group is among these, if its leader is on the node.
  uint32_t own_of_node() const;
};

/// The groups of ranks at `places` (by rank), as `rank` sees them; every rank finds the same. A group of a given number
/// of ranks takes them in their order; it crosses nodes only if the ranks can send messages beside the program's
/// (`concurrent`) and it need not stay, else it is split at their borders, with a warning. Groups of all other kinds
/// stay on a node. A node whose name another one has, too, gets a number behind it.
GroupPlan plan_groups(const std::vector<RankPlace>& places, const GroupRule& rule, bool concurrent, uint32_t rank);

/// The plan for all ranks, from the place of each. Collective.
Result<GroupPlan> agree_on_groups(Communicator& ranks, const RankPlace& own_place, const GroupRule& rule);

}  // namespace varve
