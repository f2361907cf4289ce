#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "store/set_record.h"

namespace varve {

/// "JOB@STEP" as a folder's name; none for anything else.
std::optional<SetName> parse_set_name(std::string_view text);

/// What the redundancy files of one failure group have as their label, if the nodes of a job have several: of which set
/// they are, and of which of its groups.
struct NodeLabel {
  SetName set;
  uint32_t group = 0;  ///< counts from 0
  uint32_t group_count = 1;
  bool operator==(const NodeLabel&) const = default;

  /// "JOB@STEP.GROUP-of-COUNT"; counts from 1
  std::string text() const;
  /// The reverse of text(); none for anything else.
  static std::optional<NodeLabel> parse(std::string_view text);
};

}  // namespace varve
