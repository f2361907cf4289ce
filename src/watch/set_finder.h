#pragma once

#include <string>
#include <vector>

#include "aggregate/source.h"
#include "core/progress.h"
#include "watch/set_pattern.h"

namespace varve {

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
  /// `rank_regex` as SaveOptions::rank_regex; of use if the pattern has no {rank}.
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
