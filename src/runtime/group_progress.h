#pragma once

#include <atomic>
#include <functional>
#include <string_view>

#include "core/clock.h"
#include "core/progress.h"
#include "core/sync.h"
#include "core/warning_list.h"
#include "snapshot/control_block.h"

namespace varve {

/// How far a group is with a checkpoint: counts what the engine has dealt with, and has it told to the members now and
/// then. Thread-safe.
class GroupProgress final : public ProgressSink {
 public:
  using Post = std::function<void(const GroupNews&)>;
  /// `post` tells the members; it is called by one thread at a time.
  GroupProgress(Post post, WarningList& warnings, Clock& clock)
      : post_(std::move(post)), warnings_(warnings), clock_(clock) {}

  /// A checkpoint of so many bytes begins.
  void begin(uint64_t bytes);
  /// All bytes of it are dealt with.
  void wrote();
  /// It ended: persistent, or as `outcome` says.
  void end(uint64_t step, const Status& outcome);
  /// Of no checkpoint up to `step` anything more will be tried.
  void finish(uint64_t step);
  /// From now on the engine is asked to stop at the next convenient point.
  void cancel() { cancelled_ = true; }

  void total(uint64_t) override {}
  void advance(uint64_t bytes) override;
  void phase(std::string_view) override {}
  void warning(const Status& what) override { warnings_.add(what); }
  bool cancelled() const override { return cancelled_; }

 private:
  const Post post_;
  WarningList& warnings_;
  Clock& clock_;
  std::atomic<bool> cancelled_{false};
  std::atomic<uint64_t> written_{0};
  Mutex mutex_;  ///< guards all below, and is held while `post_` runs
  GroupNews news_;
  double posted_ = 0;  ///< when
};

}  // namespace varve
