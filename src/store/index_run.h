#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "core/page_allocator.h"
#include "core/sync.h"
#include "format/pack.h"

namespace varve {

/// How many bytes of pages several files may hold together.
class PageBudget {
 public:
  explicit PageBudget(uint64_t bytes) : left_(static_cast<int64_t>(bytes)) {}
  /// Whether there was room for it; then it is taken.
  bool take(int64_t bytes) {
    if (left_.fetch_sub(bytes, std::memory_order_relaxed) >= bytes) return true;
    give_back(bytes);
    return false;
  }
  void take_always(int64_t bytes) { left_.fetch_sub(bytes, std::memory_order_relaxed); }
  void give_back(int64_t bytes) { left_.fetch_add(bytes, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> left_;
};

/// An immutable file of which small pieces are looked at again and again. Its pages are held once they were looked at
/// some times, as those of a mapped file would be; but what the disk does not give is a failed read, and not the end of
/// the program by SIGBUS. Thread-safe.
class PagedFile {
 public:
  /// `budget` outlives it, and is for the pages that read() may hold.
  static Result<std::unique_ptr<PagedFile>> open(Backend& backend, const std::string& path,
                                                 std::shared_ptr<PageBudget> budget);
  ~PagedFile();
  PagedFile(const PagedFile&) = delete;
  PagedFile& operator=(const PagedFile&) = delete;

  uint64_t bytes() const { return bytes_; }

  enum class Hold {
    within_budget,  ///< once it was looked at more often than by those who find nothing there
    always,         ///< at once
  };
  /// Whether the bytes from `offset` could be read: failure() says why not.
  bool read(uint64_t offset, MutableByteSpan into, Hold hold = Hold::within_budget) const;
  /// The same past all pages, for who reads a lot once.
  Status read_once(uint64_t offset, MutableByteSpan into) const;
  /// Has what read() holds of that place brought near the processor.
  void prefetch(uint64_t offset) const {
    const std::byte* const page = pages_[offset / kPageBytes].load(std::memory_order_acquire);
    if (page != nullptr) __builtin_prefetch(page + offset % kPageBytes);
  }

  /// The first failure of a read.
  Status failure() const;

 private:
  static constexpr uint64_t kPageBytes = 4096;

  PagedFile(std::unique_ptr<RangeReader> file, uint64_t bytes, std::string path, std::shared_ptr<PageBudget> budget);
  /// The page, which it reads if need be; null if it cannot be read, or not be held.
  const std::byte* page(uint64_t number, Hold hold) const;

  const std::unique_ptr<RangeReader> file_;
  const uint64_t bytes_;
  const std::string path_;  ///< for messages
  const std::shared_ptr<PageBudget> budget_;
  const std::unique_ptr<std::atomic<std::byte*>[]> pages_;  ///< by number; null: not held
  const std::unique_ptr<std::atomic<uint8_t>[]> looks_;     ///< at pages that were not held
  mutable Mutex mutex_;
  mutable Status failure_ VARVE_GUARDED_BY(mutex_);
};

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
/// As many as a save has laid down chunks.
using ChunkIndexEntries = std::vector<ChunkIndexEntry, PageAllocator<ChunkIndexEntry>>;

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
  static Result<std::unique_ptr<ChunkIndexRun>> open(Backend& backend, const std::string& path, const UniqueId& store,
                                                     std::shared_ptr<PageBudget> budget = nullptr);

  /// For messages (Backend::shown_path).
  const std::string& path() const { return path_; }
  const RunTable& table() const { return table_; }
  const std::vector<ArenaId>& arenas() const { return table_.arenas; }
  uint64_t entry_count() const { return table_.entry_count; }
  uint64_t file_bytes() const { return file_->bytes(); }
  /// What of the file every look-up touches.
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
Result<RunTable> read_run_table(Backend& backend, const std::string& path, const UniqueId& store);

/// Writes a run at `path` (through a temporary name). `next` gives the `table.entry_count` entries in ascending order.
Status write_index_run(Backend& backend, const std::string& path, const UniqueId& store, const RunTable& table,
                       const std::function<Result<ChunkIndexEntry>()>& next);

/// The entries of several runs as those of one, in order: of each arena from the first run that names it, and only what
/// belongs to `scope` and to arenas that `is_there`.
class MergedRuns {
 public:
  static Result<MergedRuns> open(std::vector<std::shared_ptr<const ChunkIndexRun>> runs, const RunScope& scope,
                                 const std::function<bool(const ArenaId&)>& is_there);

  /// All that is kept; entries refer to it.
  const std::vector<ArenaId>& arenas() const { return arenas_; }
  uint64_t entry_count() const { return entry_count_; }
  /// To be called entry_count() times.
  Result<ChunkIndexEntry> next();

 private:
  static constexpr uint32_t kDropped = UINT32_MAX;
  using Head = std::pair<uint64_t, size_t>;  // prefix, run

  /// A run as it is gone through, some entries at a time.
  struct Reading {
    std::shared_ptr<const ChunkIndexRun> run;
    std::vector<uint32_t> ordinals{};  ///< of its arenas in arenas_, or kDropped
    std::vector<ChunkIndexEntry> entries{};
    uint64_t first = 0;  ///< position of entries.front()
    size_t at = 0;       ///< in entries
    const ChunkIndexEntry& entry() const { return entries[at]; }
  };

  explicit MergedRuns(const RunScope& scope) : scope_(scope) {}
  Status begin(const std::function<bool(const ArenaId&)>& is_there);
  bool kept(const Reading& reading) const;
  /// Whether there is an entry at `at`, which is read if need be.
  static Result<bool> fill(Reading& reading);
  /// Goes on to a run's next entry that is kept, at or after the one where it is.
  Status advance(size_t run);

  RunScope scope_;
  std::vector<Reading> runs_;
  std::vector<ArenaId> arenas_;
  std::priority_queue<Head, std::vector<Head>, std::greater<>> heads_;
  uint64_t entry_count_ = 0;
};

}  // namespace varve
