#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "redundancy/parity_group.h"
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
extern const LevelKind kMemoryLevel, kNodeLevel, kRedundancyLevel, kFolderLevel, kTcpLevel, kUnixLevel, kBucketLevel;

/// A place that holds checkpoint sets, as a user writes it: a place, then options separated by blanks, in any order.
///
///   memory | local:PATH | partner | xor:G | rs:K+M | dir:PATH | tcp://HOST:PORT[,HOST:PORT...] | unix:PATH[,PATH...] |
///   s3://BUCKET/PREFIX
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
  /// Whether it makes the sets of the level before it outlast the loss of nodes.
  bool is_redundancy() const { return kind->position == LevelKind::Position::behind_node; }
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

/// The level that is a store at this place, which is written as for open_location(), and has no options.
Result<LevelSpec> level_at(std::string_view location);

/// LevelKind::take of kinds that are a word and a place behind it: the first of the kind's words.
Status take_place(LevelSpec& level, std::string_view word);
/// LevelKind::name of these.
std::string name_with_place(const LevelSpec& level);

/// Where a checkpoint goes beyond the memory.
struct LevelDuty {
  bool save = true;  ///< to the nearest store
  /// SetRecord::number, if it is saved: which levels behind that it is due to (is_due()). Else that of the next set.
  uint64_t number = 0;
  bool everywhere = false;  ///< to all of them, whatever their turn is
};

/// Decides for each checkpoint whether it becomes a set, and of which number. Counts what all ranks do alike, so that
/// all decide alike.
class LevelSchedule {
 public:
  explicit LevelSchedule(const std::vector<LevelSpec>& levels);
  /// The number of the next set, or at least that; the same on all ranks.
  void go_on_from(uint64_t number) { next_number_ = number; }
  void go_on_behind(uint64_t number) { next_number_ = std::max(next_number_, number); }
  uint64_t next_number() const { return next_number_; }
  /// For the next checkpoint. `must_last`: it goes to the nearest store, whatever its turn is; `everywhere`: to all
  /// levels.
  LevelDuty next(bool must_last, bool everywhere);

 private:
  uint64_t save_every_ = 1;
  uint64_t checkpoints_ = 0;
  uint64_t next_number_ = 1;
};

}  // namespace varve
