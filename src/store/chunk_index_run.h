#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "arena/pack.h"
#include "core/file_system.h"

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

/// A sorted, immutable file of known chunks of some arenas, mapped into memory (FORMAT.md, "Index runs"). It is
/// disposable: it is neither synced nor trusted, every candidate is checked, and a damaged or missing run only costs a
/// rebuild. Thread-safe.
class ChunkIndexRun {
 public:
  static Result<std::unique_ptr<ChunkIndexRun>> open(FileSystem& fs, const std::string& path, const UniqueId& store);

  const std::string& path() const { return path_; }
  const std::vector<ArenaId>& arenas() const { return arenas_; }
  uint64_t entry_count() const { return entry_count_; }
  uint64_t file_bytes() const { return mapping_->bytes().size(); }
  /// Of the file: what every look-up touches.
  uint64_t filter_bytes() const { return static_cast<uint64_t>(buckets_ - filter_); }
  ChunkIndexEntry entry(uint64_t position) const;
  /// Appends the candidates with this prefix.
  void find(uint64_t prefix, std::vector<ChunkCandidate>& candidates) const;
  /// Has the memory that find() looks at first brought near: for who looks up many, some ahead.
  void prefetch(uint64_t prefix) const;
  /// Checks the whole file against its checksum.
  Status verify() const;

 private:
  explicit ChunkIndexRun(std::string path) : path_(std::move(path)) {}
  Status parse(const UniqueId& store);
  uint64_t prefix_at(uint64_t position) const { return load_le<uint64_t>(prefixes_ + 8 * position); }

  const std::string path_;
  std::unique_ptr<FileMapping> mapping_;
  std::vector<ArenaId> arenas_;
  uint64_t entry_count_ = 0;
  uint32_t bucket_bits_ = 0;
  uint64_t filter_blocks_ = 0;
  const std::byte* filter_ = nullptr;
  const std::byte* buckets_ = nullptr;
  const std::byte* prefixes_ = nullptr;
  const std::byte* places_ = nullptr;
};

/// Writes a run at `path` (through a temporary name). `next` gives the `entry_count` entries in ascending order.
Status write_index_run(FileSystem& fs, const std::string& path, const UniqueId& store,
                       const std::vector<ArenaId>& arenas, uint64_t entry_count,
                       const std::function<ChunkIndexEntry()>& next);

}  // namespace varve
