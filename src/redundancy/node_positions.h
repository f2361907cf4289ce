#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/file_system.h"
#include "redundancy/parity_group.h"

namespace varve {

// Which node has which position in the failure groups of a set, when the nodes are not in the order that they had when
// it was protected, or some of them are others.

/// Where a node stands in the groups of a set.
struct GroupPosition {
  uint32_t group = 0;  ///< ordinal
  uint32_t position = 0;
  auto operator<=>(const GroupPosition&) const = default;
};

/// What a node's folder tells of its position.
struct NodeClaim {
  /// What it was found by; a redundancy file says more than an arena.
  enum class Found : uint8_t { by_nothing, by_arena, by_header, by_redundancy_file };
  Found found = Found::by_nothing;
  GroupPosition at;  ///< unless found by nothing
  bool has_store = false;
  /// The store has nothing of its own, or there is none: it may take anybody's position.
  bool is_free = false;
  std::string node;

  ByteVector encode() const;
  /// From what another rank says; corrupt unless it makes sense for these groups.
  static Result<NodeClaim> decode(ByteSpan bytes, std::span<const ParityGroup> groups);
};

/// Looks at the store at `path`, which need not be there. `own`: what its redundancy file says, if it is one of these
/// groups. Fails if the folder cannot be listed.
Result<NodeClaim> find_claim(FileSystem& fs, const std::string& path, std::span<const ParityGroup> groups,
                             std::optional<GroupPosition> own);

/// The rank of each position of each group, decided from the claims of all ranks: first who is known by more, then by
/// rank. Positions that nobody claims are taken by free nodes: by the one that has the name, else in the order of ranks
/// and of positions as they were dealt out (node_redundancy.h). The same on all ranks. not_found: too few nodes;
/// already_exists: the nodes that are left have stores with something else.
Result<std::vector<std::vector<uint32_t>>> assign_positions(std::span<const ParityGroup> groups,
                                                            std::span<const NodeClaim> claims);

}  // namespace varve
