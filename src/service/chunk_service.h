#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "store/chunk_index.h"
#include "store/chunk_lookup.h"

namespace varve {

/// A server's own index of the chunks that its store has. It is opened when somebody first asks, and anew after arenas
/// came or went; who asks meanwhile waits for a bounded time, and is then answered from the old one. Thread-safe.
class ChunkService final : public ChunkLookup {
 public:
  /// `memory_bytes` bounds what indexing arenas holds.
  ChunkService(std::string store_path, uint64_t memory_bytes);
  ~ChunkService() override;
  ChunkService(const ChunkService&) = delete;
  ChunkService& operator=(const ChunkService&) = delete;

  /// Finds at most kFindCandidatesMax for a prefix. Nothing is known as long as there is no index.
  Status find(std::span<const uint64_t> prefixes, std::span<uint32_t> counts,
              std::vector<ChunkCandidate>& candidates) override;
  /// That a set was committed: its chunks are indexed before somebody asks.
  void keep_up();

 private:
  /// An index, with the store it looks into.
  struct Snapshot {
    std::unique_ptr<Store> store;
    std::unique_ptr<ChunkIndex> index;
    std::vector<ArenaId> arenas;  ///< that were there when it was opened
  };
  std::shared_ptr<const Snapshot> current();
  /// Has the opener look for new arenas, unless it is at it. The caller holds mutex_.
  void want();
  /// `old` again if the same arenas are there.
  Result<std::shared_ptr<const Snapshot>> open(std::shared_ptr<const Snapshot> old) const;
  void run();

  const std::string store_path_;
  const uint64_t memory_bytes_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::shared_ptr<const Snapshot> snapshot_;
  int64_t seen_ns_ = 0;  ///< when the folder of arenas had been changed last before snapshot_ was made or found right
  bool wanted_ = false;
  std::chrono::steady_clock::time_point opening_began_;
  bool ending_ = false;
  std::thread opener_;
};

}  // namespace varve
