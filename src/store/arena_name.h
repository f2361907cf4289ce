#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "arena/frame.h"

namespace varve {

/// The name of an arena's file in the folder `arenas/` of a store (FORMAT.md, "The folder of a store").
inline std::string arena_file_name(const ArenaId& arena) { return arena.hex() + ".arena"; }

/// The arena whose file has this name; none for other names.
inline std::optional<ArenaId> parse_arena_file_name(std::string_view name) {
  const Result<ArenaId> id = ArenaId::parse(name.substr(0, name.find('.')));
  // Only its one spelling is the name of the file.
  return id.ok() && arena_file_name(*id) == name ? std::optional(*id) : std::nullopt;
}

}  // namespace varve
