#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "varve/status.h"

namespace varve {

/// How the nodes of a failure group protect each other's data. In all schemes each node has parity of others' data, as
/// much on every node, and a loss of up to losses_max() nodes of a group can be rebuilt.
struct Redundancy {
  enum class Scheme : uint8_t {
    partner,       ///< each node has a copy of another one's data (SCR's PARTNER)
    exclusive_or,  ///< one parity part for G − 1 data parts (SCR's XOR, like RAID 5)
    reed_solomon,  ///< M parity parts for K data parts
  };
  Scheme scheme = Scheme::partner;
  /// The parts of a code word, each on a node of its own. A copy is a code of one data part and one parity part.
  uint32_t data_parts = 1;
  uint32_t parity_parts = 1;
  bool operator==(const Redundancy&) const = default;

  /// "partner", "xor:G" with 2 <= G, or "rs:K+M" with 1 <= K, 1 <= M; at most kErasurePartsMax parts. invalid_argument
  /// for all else.
  static Result<Redundancy> parse(std::string_view text);
  /// What parse() takes.
  std::string text() const;

  /// As many nodes make a group, at least.
  uint32_t nodes_min() const { return data_parts + parity_parts; }
  /// As many nodes of a group may be lost.
  uint32_t losses_max() const { return parity_parts; }
};

}  // namespace varve
