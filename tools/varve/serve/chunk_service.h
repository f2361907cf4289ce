#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "backend/backend.h"
#include "core/sync.h"
#include "store/chunk_index.h"

namespace varve {

/// A server's own index of the chunks that its store has. It is opened when somebody first asks, and anew after arenas
/// came or went; who asks meanwhile waits for a bounded time, and is then answered from the old one.
///
/// If the folder is one of several places of a store, the index has what clients bring, since they alone see all arenas
/// (chunk_index.h); the server merges it, meanwhile answering from what there was. Thread-safe.
class ChunkService final : public ChunkLookup {
 public:
  /// `store`, which outlives it, has the store. `folder` is where that lies, if it is a folder: its times show that
  /// there may be more to know. Empty: that is looked for every few seconds. `memory_bytes` bounds what indexing arenas
  /// holds.
  ChunkService(Backend& store, std::string folder, uint64_t memory_bytes);
  ~ChunkService() override;
  ChunkService(const ChunkService&) = delete;
  ChunkService& operator=(const ChunkService&) = delete;

  /// Finds at most kFindCandidatesMax for a prefix. Nothing is known as long as there is no index.
  Status find(std::span<const uint64_t> prefixes, std::span<uint32_t> counts,
              std::vector<ChunkCandidate>& candidates) override;
  bool is_far() const override { return false; }
  bool keeps_index() const override { return true; }
  /// That a set was committed: its chunks are indexed before somebody asks.
  void keep_up();

 private:
  /// What can be searched.
  struct Snapshot {
    // Of a store in one place: its index, and the arenas that were there when it was opened.
    std::unique_ptr<Store> store;
    std::unique_ptr<ChunkIndex> index;
    std::vector<ArenaId> arenas;
    // Of one of several places.
    std::optional<IndexFolder> runs;

    void prefetch(uint64_t prefix) const { runs ? runs->prefetch(prefix) : index->prefetch(prefix); }
    void find(uint64_t prefix, std::vector<ChunkCandidate>& candidates) const {
      runs ? runs->runs().find(prefix, candidates) : index->find(prefix, candidates);
    }
    /// The folder that shows by its time that there may be more to know.
    const char* watched() const { return runs ? "index" : "arenas"; }
  };
  using SnapshotPointer = std::shared_ptr<const Snapshot>;

  SnapshotPointer current();
  /// Has the opener look for new arenas, unless it is at it.
  void want() VARVE_REQUIRES(mutex_);
  /// `old` again if nothing has changed.
  Result<SnapshotPointer> open(const SnapshotPointer& old) const;
  Result<SnapshotPointer> open_place(const SnapshotPointer& old) const;
  /// `snapshot` with fewer runs, if it has too many; else null.
  SnapshotPointer merged(const SnapshotPointer& snapshot) const;
  void run();
  int64_t changed_ns(const SnapshotPointer& snapshot) const;

  Backend& backend_;
  const std::string folder_;
  const uint64_t memory_bytes_;
  Mutex mutex_;
  ConditionVariable changed_;
  SnapshotPointer snapshot_ VARVE_GUARDED_BY(mutex_);
  /// When the watched folder had been changed last before snapshot_ was made or found right.
  int64_t seen_ns_ VARVE_GUARDED_BY(mutex_) = 0;
  bool wanted_ VARVE_GUARDED_BY(mutex_) = false;
  bool news_ VARVE_GUARDED_BY(mutex_) = false;  ///< keep_up() was called since the last opening began
  Moment opening_began_ VARVE_GUARDED_BY(mutex_);
  bool ending_ VARVE_GUARDED_BY(mutex_) = false;
  Thread opener_ VARVE_GUARDED_BY(mutex_);
};

}  // namespace varve
