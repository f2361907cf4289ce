#include "backend/block_cache.h"

#include "core/guarded.h"

namespace varve {

Result<BlockCache::Block> BlockCache::get(const std::string& key, const std::string& version, uint64_t number,
                                          const std::function<Result<ByteVector>()>& fetch) {
  const Name name{key + " " + version, number};
  MutexLock lock(mutex_);
  while (fetching_.contains(name)) fetched_.wait(mutex_);
  if (Block known = find_locked(name)) return known;
  fetching_.insert(name);
  lock.unlock();
  Result<ByteVector> bytes = run_guarded(fetch);
  lock.lock();
  fetching_.erase(name);
  fetched_.notify_all();
  VARVE_TRY(bytes.status());
  return add_locked(name, std::move(*bytes));
}

void BlockCache::add(const std::string& key, const std::string& version, uint64_t number, ByteVector bytes) {
  const MutexLock lock(mutex_);
  add_locked({key + " " + version, number}, std::move(bytes));
}

bool BlockCache::has_some_of(const std::string& key) const {
  const MutexLock lock(mutex_);
  const auto found = blocks_.lower_bound({key + " ", 0});
  return found != blocks_.end() && found->first.first.starts_with(key + " ");
}

BlockCache::Block BlockCache::find_locked(const Name& name) {
  const auto found = blocks_.find(name);
  if (found == blocks_.end()) return nullptr;
  used_.splice(used_.begin(), used_, found->second.used);
  return found->second.block;
}

BlockCache::Block BlockCache::add_locked(const Name& name, ByteVector bytes) {
  auto block = std::make_shared<const ByteVector>(std::move(bytes));
  std::list<Name> used{name};
  const auto [at, is_new] = blocks_.try_emplace(name, Cached{block, used.begin()});
  if (!is_new) return at->second.block;
  // Nothing fails from here on: a block in the map is in the list, too.
  bytes_ += block->size();
  used_.splice(used_.begin(), used);
  while (bytes_ > bytes_max_) {
    const auto oldest = blocks_.find(used_.back());
    bytes_ -= oldest->second.block->size();
    blocks_.erase(oldest);
    used_.pop_back();
  }
  return block;
}

}  // namespace varve
