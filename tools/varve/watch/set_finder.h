#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "core/progress.h"
#include "engine/source.h"
#include "watch/set_pattern.h"

namespace varve {

/// The files of one step below a watched folder; perhaps not all are there yet.
struct FoundSet {
  std::string folder;  ///< that the paths of `files` are relative to: the set's own, or the watched one
  uint64_t step = 0;
  std::vector<SourceFile> files{};  ///< with their ranks; sorted by path
  /// Its names tell no step: it is there once, and its step is the time of its newest file, in seconds.
  bool goes_by_time = false;
};

/// Whether the path is the folder's, or of something in it.
bool is_below(const std::string& path, const std::string& folder);

/// Finds what may be sets in one watched folder. Looks only, but that it gives files their names back that a stopped
/// removal has left without (put_back_unremoved()), unless it may look_only(). One thread at a time.
class SetFinder {
 public:
  /// There is a pattern at least. `rank_regex` as RankGrouping::rank_regex, and `rank_count` as
  /// Completeness::rank_count: of use if a pattern has no {rank}.
  SetFinder(std::string folder, SetPatterns patterns, std::string rank_regex, uint64_t rank_count = 0)
      : folder_(std::move(folder)),
        patterns_(std::move(patterns)),
        rank_regex_(std::move(rank_regex)),
        rank_count_(rank_count) {}

  void look_only() { looks_only_ = true; }
  /// That the job has times: so numbers are times, whatever else is in the folder.
  void note_times() { among_times_ = true; }

  /// Takes the first pattern by which there is something to be found, and stays with it; until then the first of all.
  /// Where nobody has said one, takes that of find_rank_folders(), as soon as it finds some. Returns the others by
  /// which there is something as well, once.
  Result<std::vector<std::string>> choose_pattern();
  const SetPattern& pattern() const { return patterns_[chosen_]; }
  /// How many folders are taken for ranks', by their look; 0: the pattern is what was said, or the default.
  size_t rank_folder_count() const { return rank_folder_count_; }

  // What follows is by that pattern.

  /// All sets, by step. What vanishes while it is looked at is left out.
  Result<std::vector<FoundSet>> find(ProgressSink& progress) const;
  /// Only the folders that are sets by their names, without what is in them. None, if sets are no folders.
  Result<std::vector<FoundSet>> find_folders() const;
  /// What is in the folder of a set that find_folders() has named.
  Status look_into(FoundSet& set, ProgressSink& progress) const;

  const std::string& folder() const { return folder_; }

 private:
  using VisitFolder = std::function<Status(const std::string& path)>;
  /// Visits what is `depth` components below the watched folder and fits the pattern by name: folders, or with `files`
  /// all else.
  Status visit(size_t depth, bool files, const VisitFolder& visitor) const;
  Status visit_below(const std::string& path, size_t depth, size_t wanted, bool files,
                     const VisitFolder& visitor) const;
  Result<std::set<std::string>> find_paths() const;
  Result<std::vector<std::string>> look_for_rank_folders();
  Result<std::vector<SourceFile>> look_at_files(const std::string& folder, size_t depth_max,
                                                ProgressSink& progress) const;
  Result<std::vector<FoundSet>> find_files_of_sets(ProgressSink& progress) const;
  Status assign(std::vector<SourceFile>& files) const;

  const std::string folder_;
  SetPatterns patterns_;
  const std::string rank_regex_;
  const uint64_t rank_count_;
  size_t chosen_ = 0, rank_folder_count_ = 0;
  bool has_chosen_ = false, looks_only_ = false;
  mutable bool among_times_ = false;  ///< once it is known, it stays so
};

}  // namespace varve
