#pragma once

#include <functional>

#include "varve/communicator.h"

namespace varve {

/// What a communicator also is if what carries its messages may end before it does, as MPI does in MPI_Finalize().
class EndingRanks {
 public:
  virtual ~EndingRanks() = default;

  /// Whether that has happened: all calls fail then, at once. Thread-safe.
  virtual bool ended() const = 0;
  /// Has `call` made when it is about to happen, once, on the thread that ends it. Messages still go then, all ranks
  /// make their calls, those of several communicators in the opposite order of their making, and afterwards no message
  /// goes any more. A second call replaces the first. It may not destroy the communicator, nor throw.
  virtual void set_before_end(std::function<void()> call) = 0;
};

/// Whether messages between these ranks have ended.
inline bool have_ended(const Communicator& ranks) {
  const auto* const ending = dynamic_cast<const EndingRanks*>(&ranks);
  return ending != nullptr && ending->ended();
}

}  // namespace varve
