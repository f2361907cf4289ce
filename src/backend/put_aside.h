#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/bytes.h"
#include "varve/status.h"

namespace varve {

/// What an object is called while somebody removes it who has to see first whether it is the one: NAME.HASH.ID.aside,
/// of which the hash says what was to be removed (FORMAT.md, "The folder of a store"; COMMIT.md, "Dropping a set").
struct PutAside {
  std::string name;  ///< that it had
  std::string hash;  ///< of the contents that are to go

  /// A name for one attempt to remove `name`, if it has these contents.
  static Result<std::string> path_for(const std::string& name, ByteSpan contents);
  /// None: `path` is no such name.
  static std::optional<PutAside> parse(std::string_view path);
  bool is_to_go(ByteSpan contents) const;
};

}  // namespace varve
