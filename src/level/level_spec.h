#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "level/level_kind.h"
#include "redundancy/redundancy_scheme.h"
#include "varve/status.h"

namespace varve {

/// A place that holds checkpoint sets, as a user writes it: a place, then options separated by blanks, in any order.
///
///   memory | local:PATH | partner | xor:G | rs:K+M | dir:PATH | tcp://HOST:PORT[,HOST:PORT...] | unix:PATH[,PATH...]
///   every=K  keep=N  bandwidth=RATE  backlog=N
///
/// A path alone that begins with "/" means dir:PATH. In a place, a blank is written %20, ";" %3B and "%" %25.
struct LevelSpec {
  const LevelKind* kind = &kFolderLevel;  ///< never null
  /// What follows the kind, with its %XX turned into what they mean: a path, or "HOST:PORT,HOST:PORT". Empty for memory
  /// and redundancy.
  std::string place;
  Redundancy redundancy;  ///< for that kind
  /// Each so many-th set comes here, the first of them the `every`-th: of the checkpoints for the first level that is a
  /// store, of the sets of that level for all after it. 1 for memory.
  uint64_t every = 1;
  std::optional<uint64_t> keep;              ///< so many of the newest sets stay; none: all
  std::optional<uint64_t> bytes_per_second;  ///< at most so fast it is written, by each process; none: no limit
  /// So many sets may wait for this level, which the nearest store keeps for it; of more, the oldest are given up.
  /// None: all wait.
  std::optional<uint64_t> backlog;
  bool operator==(const LevelSpec&) const = default;

  /// Whether it is a store: neither memory nor redundancy.
  bool holds_sets() const { return kind->holds_sets; }
  bool is_of_node() const { return kind->position == LevelKind::Position::of_node; }
  bool is_on_servers() const { return kind->on_servers; }
  /// The level in one text that parse_level() takes, options that say nothing left out.
  std::string to_string() const;
  /// The place alone, for people and for open_location(): "memory", "local:/nvme/varve", "xor:8", "tcp://a:7000".
  std::string name() const { return kind->name(*this); }
};

/// invalid_argument: names the level, and what is wrong with it.
Result<LevelSpec> parse_level(std::string_view text);

/// Levels separated by ";", nearest first. invalid_argument as parse_level(), or if they do not go together: memory
/// is first and there once at most; then local, if it is there, with its redundancy right behind it; then the others.
/// No place twice. One of them holds sets.
Result<std::vector<LevelSpec>> parse_levels(std::string_view text);

/// The levels in one text that parse_levels() takes.
std::string to_string(const std::vector<LevelSpec>& levels);

/// `place`, as LevelSpec takes it, with what would end it in a level's text written as %XX.
std::string escape_place(std::string_view place);
/// LevelKind::take of kinds that are a word and a place behind it: the first of the kind's words.
Status take_place(LevelSpec& level, std::string_view word);
/// LevelKind::name of these.
std::string name_with_place(const LevelSpec& level);

}  // namespace varve
