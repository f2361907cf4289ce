#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "arena/pack.h"
#include "core/sync.h"
#include "core/thread_pool.h"
#include "mount/shared_cache.h"
#include "store/tree.h"

namespace varve {

/// The decoded packs that readers of stored files share: each is read and decoded once, however many threads want it,
/// and kept while there is room. Every byte that leaves was checked against its chunk's score. Thread-safe.
class PackCache {
 public:
  /// Reads a pack in which `ranges` are whole, as Store::read_pack() does.
  using ReadPack = std::function<Result<Pack>(const PackLink& link, std::span<const Extent> ranges)>;

  /// `bytes_max`: of decoded packs; those in use and one for each thread come on top.
  PackCache(ReadPack read_pack, uint64_t bytes_max, size_t thread_count);

  /// Fills `into` with the pack's bytes from `offset`.
  Status read(const PackLink& link, uint64_t offset, MutableByteSpan into);

  /// Has a pack read in the background, with `ranges` checked, unless it is here or too much is on its way already.
  void read_ahead(const PackLink& link, std::vector<Extent> ranges);

 private:
  struct Held {
    explicit Held(Pack decoded) : pack(std::move(decoded)) {}
    Mutex mutex;  ///< guards the pack's notes of what is checked; its bytes are constant
    Pack pack;
  };
  using Cache = SharedCache<Score, Held, ScoreHash>;
  Result<std::shared_ptr<Held>> get(const PackLink& link, std::span<const Extent> ranges);

  const ReadPack read_pack_;
  Cache cache_;
  std::atomic<size_t> on_their_way_{0};
  ThreadPool pool_;  ///< last, so that it ends first
};

}  // namespace varve
