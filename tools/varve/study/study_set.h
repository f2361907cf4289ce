#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/group_streams.h"
#include "store/store.h"
#include "varve/status.h"

namespace varve {

/// Where one set of a series lies: a folder, or one file of it.
struct SetPlace {
  std::string label;   ///< what the set is called in results
  std::string folder;  ///< that holds its files
  std::string file;    ///< empty: all that is in the folder; else this one alone
};

/// The sets that paths name, oldest first:
/// - a folder that holds folders and no file is a series: each folder in it is a set, in natural order;
/// - any other folder is one set, with all that is below it;
/// - a file is a set of its own.
/// Several paths follow one another as they are given. not_found, io_error: a path cannot be looked at;
/// invalid_argument: there is nothing to study.
Result<std::vector<SetPlace>> find_series(const std::vector<std::string>& paths);

/// Whether `a` comes before `b` as people count: runs of digits by their value, so that dump9 comes before dump10.
bool natural_less(std::string_view a, std::string_view b);

/// Reads the bytes of a set's files. One thread.
class SetReader {
 public:
  virtual ~SetReader() = default;
  /// Fills `into` with the file's bytes from `offset`.
  virtual Status read(uint32_t file, uint64_t offset, MutableByteSpan into) = 0;
  /// As Source::hole_bytes().
  virtual Result<uint64_t> hole_bytes(uint32_t file, uint64_t offset, uint64_t bytes_max) = 0;
};

/// What a stream means, whatever set it is in: the streams of one variable in several sets have equal keys.
struct StreamKey {
  uint32_t class_id = 0;  ///< in StudySeries::class_keys
  uint32_t ordinal = 0;   ///< among the streams of this class and rank
};

/// One set of a series, taken apart and not read yet.
struct StudySet {
  std::string label;
  std::vector<SourceFile> files;  ///< with their ranks
  GroupStreams group;             ///< of all files, by the aware scheme
  std::vector<StreamKey> keys;    ///< of group.streams
  /// The readers outlive neither this nor what it was opened from.
  std::function<std::unique_ptr<SetReader>()> open_reader;

  uint64_t bytes() const { return group.raw_bytes; }
};

/// Sets that were written one after another, oldest first.
struct StudySeries {
  std::vector<StudySet> sets;
  SaveOptions options;                  ///< by which they were taken apart: how ranks, classes and layouts are found
  std::vector<std::string> class_keys;  ///< of all sets

  uint64_t bytes() const;
  uint64_t set_bytes_max() const;
  /// How many ranks have files in the set that has most of them; at least 1.
  uint64_t rank_count() const;
};

/// Opens sets of folders and files. Layouts are read by `options`' rules; warnings go to `progress`.
Result<StudySeries> open_series(const std::vector<SetPlace>& places, const SaveOptions& options, LayoutService& layouts,
                                ProgressSink& progress);

/// Gives the streams of all sets their keys: after the last set was added.
void match_streams(StudySeries& series);

/// Opens the sets of a job that are in a store, as far as they are complete. Nothing is restored: their bytes are read
/// out of the store's packs when they are needed, and verified. What describes the sets (the leaves of their trees) is
/// held in memory. `store` outlives the series. not_found: there is no such set.
Result<StudySeries> open_stored_series(const Store& store, const std::string& job, const SaveOptions& options,
                                       ProgressSink& progress);

}  // namespace varve
