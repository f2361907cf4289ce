#include "mount/pack_cache.h"

#include <algorithm>
#include <optional>

namespace varve {

namespace {
/// For each thread that reads ahead: what waits longer would come too late, and push out what is needed now.
constexpr size_t kWaitingPerThread = 4;
/// What a chunk of a decoded pack takes beside its bytes: table and notes.
constexpr uint64_t kChunkNoteBytes = 64;
}  // namespace

PackCache::PackCache(ReadPack read_pack, uint64_t bytes_max, size_t thread_count)
    : read_pack_(std::move(read_pack)), cache_(bytes_max), pool_(std::max<size_t>(thread_count, 1)) {}

Result<std::shared_ptr<PackCache::Held>> PackCache::get(const PackLink& link, std::span<const Extent> ranges) {
  return cache_.get(link.score, [&]() -> Result<Cache::Made> {
    VARVE_ASSIGN(Pack pack, read_pack_(link, ranges));
    const uint64_t bytes = pack.meta().held_bytes() + pack.meta().chunks.size() * kChunkNoteBytes;
    return Cache::Made{std::make_shared<Held>(std::move(pack)), bytes};
  });
}

Status PackCache::read(const PackLink& link, uint64_t offset, MutableByteSpan into) {
  const Extent wanted{offset, into.size()};
  // A copy that is kept may be damaged, or thinned by a prune, where this reader looks: then another one, once.
  for (bool again : {false, true}) {
    VARVE_ASSIGN(const std::shared_ptr<Held> held, get(link, {&wanted, 1}));
    std::optional<Result<ByteSpan>> bytes;
    {
      const MutexLock lock(held->mutex);
      bytes.emplace(held->pack.range(offset, into.size()));
    }
    if (bytes->ok()) {
      std::copy((*bytes)->begin(), (*bytes)->end(), into.begin());
      return {};
    }
    if (again) return bytes->status();
    cache_.forget(link.score, held);
  }
  return {};
}

void PackCache::read_ahead(const PackLink& link, std::vector<Extent> ranges) {
  if (cache_.has(link.score)) return;
  if (on_their_way_.fetch_add(1) >= pool_.thread_count() * kWaitingPerThread) {
    on_their_way_.fetch_sub(1);
    return;
  }
  pool_.submit([this, link, ranges = std::move(ranges)] {
    get(link, ranges).status().ignore("who needs the pack finds it again");
    on_their_way_.fetch_sub(1);
  });
}

}  // namespace varve
