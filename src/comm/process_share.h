#pragma once

#include <cstdint>
#include <vector>

#include "core/progress.h"
#include "core/sync.h"
#include "varve/communicator.h"

namespace varve {

/// Deals consecutive pieces of work out to processes: each gets neighbours, about the same number of bytes in all.
/// Every process goes through all pieces, in the same order.
class ProcessShares {
 public:
  ProcessShares(uint64_t total_bytes, uint32_t process_count) : total_bytes_(total_bytes), count_(process_count) {}
  /// The process that the next piece falls to; never lower than the last one.
  uint32_t take(uint64_t bytes);

 private:
  const uint64_t total_bytes_;
  const uint32_t count_;
  uint64_t before_ = 0;  ///< bytes of the pieces taken so far
};

/// How many threads each process of this machine may have, so that they share its processors. Collective.
Result<uint32_t> threads_of_process(Communicator& ranks);

/// The progress of one of several processes: the first shows its own; the warnings of the others are kept, and told by
/// the first at the end.
class SharedProgress final : public ProgressSink {
 public:
  SharedProgress(Communicator& ranks, ProgressSink& inner) : ranks_(ranks), inner_(inner) {}
  void total(uint64_t bytes) override;
  void advance(uint64_t bytes) override;
  void phase(std::string_view name) override;
  void warning(const Status& what) override;
  bool cancelled() const override { return inner_.cancelled(); }

  /// Tells the warnings of all processes. Collective.
  Status tell_warnings();

 private:
  Communicator& ranks_;
  ProgressSink& inner_;
  Mutex mutex_;
  std::vector<Status> warnings_ VARVE_GUARDED_BY(mutex_);
};

}  // namespace varve
