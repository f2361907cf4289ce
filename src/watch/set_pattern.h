#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "varve/status.h"

namespace varve {

/// How the names below a watched folder tell which set and which rank a file belongs to: components separated by '/',
/// in which `{step}` and `{rank}` stand for whole runs of digits, `*` for anything and `?` for one character of a
/// component; `**` as the last component stands for all that is below.
///
///     *{step}/**                 each folder whose name ends with a number is a set: the default
///     restart.{step}.{rank}      each file is one rank of one set
///     out{step}/data.cpu{rank}   folders, of which only these files are saved
class SetPattern {
 public:
  static constexpr const char* kDefault = "*{step}/**";
  SetPattern() = default;  ///< kDefault
  /// invalid_argument if it has no `{step}`, or makes no sense.
  static Result<SetPattern> parse(std::string_view text);

  struct Match {
    uint64_t step = 0;
    std::optional<uint64_t> rank;
  };
  /// What a path below the watched folder is.
  std::optional<Match> match(std::string_view path) const;

  /// How many components of a path name the folder that is the set: those up to the one with `{step}`. 0: the files of
  /// all sets lie side by side, as the last component has it.
  size_t folder_depth() const { return folder_depth_; }
  /// The step of a folder at that depth, or nothing if no set is in it.
  std::optional<uint64_t> folder_step(std::string_view path) const;
  /// Whether all of such a folder belongs to its set.
  bool whole_folder() const { return components_.size() == folder_depth_ + 1 && components_.back() == "**"; }
  bool has_rank() const { return has_rank_; }
  std::string text() const;

 private:
  std::optional<Match> match_components(const std::vector<std::string_view>& path, size_t count) const;

  std::vector<std::string> components_{"*{step}", "**"};
  size_t folder_depth_ = 1;
  bool has_rank_ = false;
};

}  // namespace varve
