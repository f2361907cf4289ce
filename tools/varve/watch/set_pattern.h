#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/step_text.h"
#include "varve/status.h"

namespace varve {

/// How the names below a watched folder tell which set and which rank a file belongs to: components separated by '/',
/// in which `{step}` and `{rank}` stand for whole runs of digits, `{time}` for a decimal number, `*` for anything and
/// `?` for one character of a component; `**` as the last component stands for all that is below.
///
///     *{step}/**                     each folder whose name ends with a number is a set, or is a time: the default
///     restart.{step}.{rank}          each file is one rank of one set
///     out{step}/data.cpu{rank}       folders, of which only these files are saved
///     processor{rank}/{time}/**      a set has a folder below that of each rank
///     state*.cpt                     names that tell no step: these files are a new set whenever they have changed
class SetPattern {
 public:
  static constexpr const char* kDefault = "*{step}/**";
  SetPattern() = default;  ///< kDefault
  /// invalid_argument if it makes no sense.
  static Result<SetPattern> parse(std::string_view text);

  struct Match {
    std::optional<uint64_t> step, rank;
  };
  /// What a path below the watched folder is.
  std::optional<Match> match(std::string_view path) const;
  /// Whether what is below a folder may match, by the folder's own name, of a depth from 1 on.
  bool may_lead_on(std::string_view name, size_t depth) const;

  /// How many components of a path name the folder that is the set: those up to the one with the step. 0: a set is no
  /// folder of its own, as the last component has the step, or none has, or a rank is named before it.
  size_t folder_depth() const { return folder_depth_; }
  /// The step of a folder at that depth, or nothing if no set is in it. `among_times`: as for step_of_name(), which the
  /// default pattern goes by.
  std::optional<uint64_t> folder_step(std::string_view path, bool among_times = false) const;
  /// Whether all of such a folder belongs to its set.
  bool whole_folder() const { return named_components() == folder_depth_ && components_.back() == "**"; }
  /// How many components a path has at least, without what `**` stands for.
  size_t named_components() const { return components_.size() - (open_ended() ? 1 : 0); }
  bool open_ended() const { return components_.back() == "**"; }
  bool has_step() const { return has_step_; }
  bool has_rank() const { return has_rank_; }
  bool is_default() const { return is_default_; }
  /// Somebody has written it: it is not to be replaced by what the names in a folder tell.
  bool is_said() const { return is_said_; }
  /// What fits it is not missed where an earlier pattern finds something: with OpenFOAM's processors, the times beside
  /// them are what the case begins with, or was put together from theirs.
  bool stands_back() const { return stands_back_; }
  void stand_back() { stands_back_ = true; }
  std::string text() const;

 private:
  std::optional<Match> match_components(const std::vector<std::string_view>& path, size_t count) const;

  std::vector<std::string> components_{"*{step}", "**"};
  size_t folder_depth_ = 1;
  bool has_step_ = true, has_rank_ = false, is_default_ = true, is_said_ = false, stands_back_ = false;
};

/// Patterns, of which the first counts by which anything is found.
using SetPatterns = std::vector<SetPattern>;
/// Of a pattern's text, or the name of a program: openfoam, gromacs, lammps, enzo, qe. invalid_argument: it makes no
/// sense, or is nearly such a name.
Result<SetPatterns> parse_patterns(std::string_view text);

}  // namespace varve
