#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <new>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/sync.h"
#include "core/thread_pool.h"
#include "format/pack.h"
#include "format/tree.h"
#include "varve/status.h"

namespace varve {

/// Keeps what is dear to make, up to so many bytes, the longest unused going first. However many threads want one thing
/// at once, it is made once, and the others wait for it. What somebody holds lives on after it has gone from here.
/// Thread-safe; what is made is made without the lock.
template <class Key, class Value, class Hash = std::hash<Key>>
class SharedCache {
 public:
  struct Made {
    std::shared_ptr<Value> value;
    uint64_t bytes = 0;  ///< what it takes
  };
  using Make = std::function<Result<Made>()>;

  explicit SharedCache(uint64_t bytes_max) : bytes_max_(bytes_max) {}
  SharedCache(const SharedCache&) = delete;
  SharedCache& operator=(const SharedCache&) = delete;

  /// What `key` stands for, made by `make` if it is not there. A failure is told to all who wait, and is not kept.
  Result<std::shared_ptr<Value>> get(const Key& key, const Make& make) {
    MutexLock lock(mutex_);
    if (auto found = slots_.find(key); found != slots_.end()) {
      const std::shared_ptr<Slot> slot = found->second;
      while (!slot->done) made_.wait(mutex_);
      if (!slot->failure.ok()) return slot->failure;
      if (slot->kept) used_.splice(used_.begin(), used_, slot->place);
      return slot->value;
    }
    const auto slot = std::make_shared<Slot>();
    slots_.emplace(key, slot);
    lock.unlock();
    Result<Made> made = make_guarded(make);
    lock.lock();
    slot->done = true;
    if (made.ok()) {
      slot->value = made->value;
      keep(key, slot, made->bytes);
    } else {
      slot->failure = made.status();
      if (auto own = slots_.find(key); own != slots_.end() && own->second == slot) slots_.erase(own);
    }
    made_.notify_all();
    if (!made.ok()) return made.status();
    return slot->value;
  }

  /// Whether it is there, or being made.
  bool has(const Key& key) const {
    const MutexLock lock(mutex_);
    return slots_.count(key) != 0;
  }

  /// Forgets it, if it still is `value`: something is wrong with it.
  void forget(const Key& key, const std::shared_ptr<Value>& value) {
    const MutexLock lock(mutex_);
    auto found = slots_.find(key);
    if (found != slots_.end() && found->second->kept && found->second->value == value) drop(found);
  }

  uint64_t bytes() const {
    const MutexLock lock(mutex_);
    return bytes_;
  }

 private:
  struct Slot {
    bool done = false, kept = false;
    std::shared_ptr<Value> value;
    Status failure;
    uint64_t bytes = 0;
    typename std::list<Key>::iterator place;
  };
  using Slots = std::unordered_map<Key, std::shared_ptr<Slot>, Hash>;

  static Result<Made> make_guarded(const Make& make) {
    try {
      return make();
    } catch (const std::bad_alloc&) {
      return Status::resource_limit("out of memory");
    } catch (const std::exception& unexpected) {
      return Status::internal(unexpected.what());
    }
  }

  void keep(const Key& key, const std::shared_ptr<Slot>& slot, uint64_t bytes) VARVE_REQUIRES(mutex_) {
    used_.push_front(key);
    slot->place = used_.begin();
    slot->kept = true;
    slot->bytes = bytes;
    bytes_ += bytes;
    // The newest stays, however large it is: those who wait for it take it from here.
    while (bytes_ > bytes_max_ && used_.size() > 1) drop(slots_.find(used_.back()));
  }

  void drop(typename Slots::iterator found) VARVE_REQUIRES(mutex_) {
    bytes_ -= found->second->bytes;
    found->second->kept = false;
    used_.erase(found->second->place);
    slots_.erase(found);
  }

  const uint64_t bytes_max_;
  mutable Mutex mutex_;  ///< guards the slots too, but for a value itself
  ConditionVariable made_;
  Slots slots_ VARVE_GUARDED_BY(mutex_);
  std::list<Key> used_ VARVE_GUARDED_BY(mutex_);  ///< those that are kept, last used first
  uint64_t bytes_ VARVE_GUARDED_BY(mutex_) = 0;
};

/// The decoded packs that readers of stored files share: each is read and decoded once, however many threads want it,
/// and kept while there is room. Every byte that leaves was checked against its chunk's score. Thread-safe.
class PackCache {
 public:
  /// Reads a pack in which `ranges` are whole, as read_pack() of a store does.
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
