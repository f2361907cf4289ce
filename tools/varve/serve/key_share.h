#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>

#include "core/sync.h"
#include "serve/rights.h"

namespace varve {

/// Of what a server has, as much as those may take who show one of its `keys` keys: whatever they all do but those of
/// one key, a quarter is left; with a single key, to what needs no share. At least 1.
size_t share_of_key(size_t all, size_t keys);

/// What those who show one key to a server (over a Unix socket: all) may do, and what they have of it together: so much
/// at most that others are served as well, whatever those do. Outlives what it counts. Thread-safe.
class KeyShare {
 public:
  struct Limits {
    size_t turns = 1, files = 1;
  };
  KeyShare(Rights rights, const Limits& limits) : rights_(rights), turns_max_(limits.turns), files_max_(limits.files) {}
  KeyShare(const KeyShare&) = delete;
  KeyShare& operator=(const KeyShare&) = delete;

  Rights rights() const { return rights_; }

  /// A connection's turn to have a thread wait for the other side, which may let it wait: until all of a long message
  /// has come, or until it has taken a long reply. Turns are given in the order in which they are asked for. One thread
  /// at a time.
  class Turn {
   public:
    /// `news` is called with a lock, by the thread that ends another one's turn.
    Turn(KeyShare& share, std::function<void()> news) : share_(share), news_(std::move(news)) {}
    ~Turn() { give_back(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    /// Whether it is this one's turn, until it is given back. If not, `news` is called once it is.
    bool take();
    void give_back();

   private:
    enum class State : uint8_t { none, waits, has };

    KeyShare& share_;
    const std::function<void()> news_;
    State state_ = State::none;         // guarded by the share's lock
    std::list<Turn*>::iterator place_;  // the same
  };

  struct FileCounter {
    void operator()(KeyShare* share) const { --share->files_; }
  };
  /// One of the files that they have open.
  using FilePlace = std::unique_ptr<KeyShare, FileCounter>;
  /// Null: they have as many as they may.
  FilePlace take_file();
  /// From now on. Those that are more already stay open.
  void limit_files(size_t files_max) { files_max_ = files_max; }

 private:
  const Rights rights_;
  const size_t turns_max_;
  std::atomic<size_t> files_max_, files_{0};
  Mutex mutex_;  ///< no other lock is taken with it
  size_t turns_ VARVE_GUARDED_BY(mutex_) = 0;
  std::list<Turn*> waiting_ VARVE_GUARDED_BY(mutex_);  ///< none, if there are turns to be had
};

}  // namespace varve
