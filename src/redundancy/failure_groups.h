#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "redundancy/redundancy_scheme.h"
#include "varve/status.h"

namespace varve {

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
/// has parts spreads the parts (stripe_geometry.h). The nodes of a group lie far from each other in the order of ranks,
/// since neighbours tend to fail together: they share a switch or a power supply.
///
/// invalid_argument if there are fewer nodes than one group needs.
Result<FailureGroups> plan_failure_groups(std::span<const std::string> node_of_rank, const Redundancy& redundancy);

}  // namespace varve
