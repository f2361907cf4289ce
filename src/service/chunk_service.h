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
/// came or went; meanwhile the old one answers, and who asks when there is none waits for a bounded time. Thread-safe.
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

 private:
  /// An index, with the store it looks into.
  struct Snapshot {
    std::unique_ptr<Store> store;
    std::unique_ptr<ChunkIndex> index;
    int64_t arenas_changed_ns = 0;  ///< when the folder of arenas was changed last before it was opened
  };
  std::shared_ptr<const Snapshot> current();
  Result<std::shared_ptr<const Snapshot>> open() const;
  void keep_up();

  const std::string store_path_;
  const uint64_t memory_bytes_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::shared_ptr<const Snapshot> snapshot_;
  bool wanted_ = false;
  std::chrono::steady_clock::time_point opening_began_;
  bool ending_ = false;
  std::thread opener_;
};

}  // namespace varve
