#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "varve/status.h"

namespace varve {

class Level;
class Levels;
struct LevelSpec;
struct LevelWorld;

/// A kind of levels: how one is written, and what all of the kind have in common. A new kind is a file that defines one
/// of these and the class behind it, and a line in level_kinds().
struct LevelKind {
  /// Where in a list levels of the kind stand.
  enum class Position : uint8_t {
    first,        ///< before all others
    of_node,      ///< one, before all that is farther away; each node has its own, at the same path
    behind_node,  ///< right behind one that is `of_node`
    farther,      ///< any number of them, behind all these
  };

  std::string_view form;                    ///< how one is written: "local:PATH"
  std::array<std::string_view, 3> words{};  ///< how it may begin, for what comes behind: "local:"
  Position position = Position::farther;
  std::string_view position_rule{};  ///< that, as it is told to who has written it elsewhere
  bool holds_sets = true;            ///< it is a store
  bool on_servers = false;
  bool takes_options = true;
  bool takes_bandwidth = true;
  /// Takes the word that names the place, if there is more to it than `words`. invalid_argument: there is something
  /// wrong with it.
  Status (*take)(LevelSpec& level, std::string_view word) = nullptr;
  /// The place alone, for people and for open_location().
  std::string (*name)(const LevelSpec& level) = nullptr;
  /// The level as one rank has it; `before`: all levels that are nearer.
  std::unique_ptr<Level> (*make)(const LevelSpec& level, LevelWorld& world, const Levels& before) = nullptr;
};

/// All kinds there are.
std::span<const LevelKind* const> level_kinds();

/// Defined beside what they make: memory_level.cpp, store_level.cpp, redundancy_level.cpp.
extern const LevelKind kMemoryLevel, kNodeLevel, kRedundancyLevel, kFolderLevel, kTcpLevel, kUnixLevel;

}  // namespace varve
