#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/unique_id.h"
#include "varve/status.h"

namespace varve {

/// Which run made a set of a node's own store, and how many ranks it had on all nodes together: the set itself holds
/// only those of its node, and sets of several nodes are one checkpoint only if they are of one run. Lies beside the
/// images of each group (FORMAT.md, "Snapshot image").
struct SetOrigin {
  UniqueId run;
  uint32_t rank_count = 0;
  bool operator==(const SetOrigin&) const = default;

  std::string text() const;
  /// corrupt unless it is what text() gives.
  static Result<SetOrigin> parse(std::string_view text);

  /// The name for the group whose first rank is this: "origin-000004.varve".
  static std::string file_name(uint32_t first_rank);
  static bool is_file_name(std::string_view path);
  static constexpr uint64_t kBytesMax = 100;
};

}  // namespace varve
