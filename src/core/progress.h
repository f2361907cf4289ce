#pragma once

#include <cstdint>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "core/sync.h"
#include "varve/status.h"

namespace varve {

/// Is told how a long operation goes on; the library itself never prints. Called from several threads at once, while
/// work waits: implementations are thread-safe and quick, and throw nothing.
class ProgressSink {
 public:
  virtual ~ProgressSink() = default;
  /// How many bytes advance() will add up to in this phase; may be told again when it turns out to be more.
  virtual void total(uint64_t bytes) = 0;
  /// That `bytes` more have been dealt with.
  virtual void advance(uint64_t bytes) = 0;
  /// That a new phase begins ("reading", "writing", "checking"): count from zero again.
  virtual void phase(std::string_view name) = 0;
  /// Something that the user should know and that does not stop the operation.
  virtual void warning(const Status& what) = 0;
  /// Whether the user wants the operation to stop: it then ends with `cancelled` at the next convenient point.
  virtual bool cancelled() const = 0;
};

/// Listens to nothing and never cancels.
class NullProgress final : public ProgressSink {
 public:
  void total(uint64_t) override {}
  void advance(uint64_t) override {}
  void phase(std::string_view) override {}
  void warning(const Status&) override {}
  bool cancelled() const override { return false; }
};

/// A NullProgress for the whole process, for default arguments.
inline ProgressSink& null_progress() {
  static NullProgress progress;
  return progress;
}

/// What the user should know, from whatever thread, until it is fetched. Thread-safe.
class WarningList {
 public:
  void add(Status warning) {
    const MutexLock lock(mutex_);
    if (warnings_.size() < kWarningsMax) warnings_.push_back(std::move(warning));
  }
  void add(const std::vector<Status>& warnings) {
    for (const Status& warning : warnings) add(warning);
  }
  std::vector<Status> take() {
    const MutexLock lock(mutex_);
    return std::exchange(warnings_, {});
  }

 private:
  /// A program that never asks must not be filled up.
  static constexpr size_t kWarningsMax = 1000;
  Mutex mutex_;
  std::vector<Status> warnings_ VARVE_GUARDED_BY(mutex_);
};

}  // namespace varve
