#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "arena/pack.h"
#include "core/file_system.h"
#include "store/paged_file.h"

namespace varve {

/// Where a chunk with some score prefix may be: a candidate to be checked against the pack's table.
struct ChunkCandidate {
  ArenaId arena;
  uint32_t pack = 0;   ///< ordinal in the arena
  uint32_t chunk = 0;  ///< ordinal in the pack
};

/// One entry of a run, as it is sorted.
struct ChunkIndexEntry {
  uint64_t prefix = 0;  ///< Score::prefix()
  uint32_t arena = 0;   ///< ordinal in the run's table of arenas
  uint32_t pack = 0;
  uint32_t chunk = 0;
  bool operator<(const ChunkIndexEntry& other) const { return prefix < other.prefix; }
};

/// What a run has of the arenas that it names (FORMAT.md, "Index runs").
struct RunScope {
  enum class Kind {
    all,    ///< all their chunks
    place,  ///< the chunks that one place of a store over several answers for (ArenaSpread::place_of_prefix())
    gone,   ///< nothing: there are no such arenas any more, whatever other runs say
  };
  Kind kind = Kind::all;
  uint32_t place = 0, places = 1;  ///< of Kind::place: which, counted from 0, of how many

  static RunScope all() { return {}; }
  /// `places` > 1.
  static RunScope of_place(uint32_t place, uint32_t places) { return {Kind::place, place, places}; }
  static RunScope gone() { return {Kind::gone, 0, 1}; }
  bool operator==(const RunScope&) const = default;
};

/// What a run says before its entries.
struct RunTable {
  std::vector<ArenaId> arenas{};
  RunScope scope{};
  uint64_t entry_count = 0;
};

/// A sorted, immutable file of known chunks of some arenas (FORMAT.md, "Index runs"). It is disposable: it is neither
/// synced nor trusted, every candidate is checked, and a damaged or missing run only costs a rebuild. In memory are its
/// filter, and of the rest what was looked at, within a budget. Thread-safe.
class ChunkIndexRun {
 public:
  /// `budget`: for all of the file but the filter; none: one of its own.
  static Result<std::unique_ptr<ChunkIndexRun>> open(FileSystem& fs, const std::string& path, const UniqueId& store,
                                                     std::shared_ptr<PageBudget> budget = nullptr);

  /// For messages (FileSystem::shown_path).
  const std::string& path() const { return path_; }
  const RunTable& table() const { return table_; }
  const std::vector<ArenaId>& arenas() const { return table_.arenas; }
  uint64_t entry_count() const { return table_.entry_count; }
  uint64_t file_bytes() const { return file_->bytes(); }
  /// Of the file: what every look-up touches.
  uint64_t filter_bytes() const { return buckets_at_ - filter_at_; }
  /// `count` entries from the one of this position on, for who goes through all.
  Result<std::vector<ChunkIndexEntry>> entries(uint64_t first, uint64_t count) const;
  /// Appends the candidates with this prefix; none that cannot be read (failure()).
  void find(uint64_t prefix, std::vector<ChunkCandidate>& candidates) const;
  /// Has the memory that find() looks at first brought near: for who looks up many, some ahead.
  void prefetch(uint64_t prefix) const;
  /// Checks the whole file against its checksum.
  Status verify() const;
  /// The first failure to read it.
  Status failure() const { return file_->failure(); }

 private:
  ChunkIndexRun(std::string path, std::unique_ptr<PagedFile> file) : path_(std::move(path)), file_(std::move(file)) {}
  Status parse(const UniqueId& store);
  bool may_have(uint64_t prefix) const;

  const std::string path_;
  const std::unique_ptr<PagedFile> file_;
  RunTable table_;
  uint32_t bucket_bits_ = 0;
  uint64_t filter_blocks_ = 0;
  uint64_t filter_at_ = 0, buckets_at_ = 0, prefixes_at_ = 0, places_at_ = 0;  ///< in the file
};

/// What a run is about, without its entries, of which nothing is read.
Result<RunTable> read_run_table(FileSystem& fs, const std::string& path, const UniqueId& store);

/// Writes a run at `path` (through a temporary name). `next` gives the `table.entry_count` entries in ascending order.
Status write_index_run(FileSystem& fs, const std::string& path, const UniqueId& store, const RunTable& table,
                       const std::function<Result<ChunkIndexEntry>()>& next);

}  // namespace varve
