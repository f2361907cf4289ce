#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/progress.h"
#include "engine/source.h"
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

/// The files of one step below a watched folder; perhaps not all are there yet.
struct FoundSet {
  std::string folder;  ///< that the paths of `files` are relative to: the set's own, or the watched one
  uint64_t step = 0;
  std::vector<SourceFile> files;  ///< with their ranks; sorted by path
};

/// Finds what may be sets in one watched folder. Looks only, but that it gives files their names back that a stopped
/// removal has left without (put_back_unremoved()). One thread at a time.
class SetFinder {
 public:
  /// `rank_regex` as RankGrouping::rank_regex; of use if the pattern has no {rank}.
  SetFinder(std::string folder, SetPattern pattern, std::string rank_regex)
      : folder_(std::move(folder)), pattern_(std::move(pattern)), rank_regex_(std::move(rank_regex)) {}

  /// All of them, by step. What vanishes while it is looked at is left out.
  Result<std::vector<FoundSet>> find(ProgressSink& progress) const;
  /// Only the folders that are sets by their names, without what is in them. None, if sets are no folders.
  Result<std::vector<FoundSet>> find_folders() const;
  /// What is in the folder of a set that find_folders() has named.
  Status look_into(FoundSet& set, ProgressSink& progress) const;

  const std::string& folder() const { return folder_; }
  const SetPattern& pattern() const { return pattern_; }

 private:
  Status add_folders(const std::string& path, size_t depth, std::vector<FoundSet>& sets) const;
  Result<std::vector<FoundSet>> find_side_by_side(ProgressSink& progress) const;
  Status assign(std::vector<SourceFile>& files) const;

  const std::string folder_;
  const SetPattern pattern_;
  const std::string rank_regex_;
};

}  // namespace varve
