#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "varve/communicator.h"

namespace varve::count {

/// What a rank has said to others. A collective call is a number of messages of its own: about the logarithm of the
/// number of ranks, where it is made as a tree (all MPI libraries do).
struct MessageCounts {
  uint64_t collectives = 0;
  uint64_t collective_bytes = 0;  ///< that the rank got from others by them
  uint64_t messages = 0;          ///< sent one by one
  uint64_t message_bytes = 0;

  MessageCounts& operator+=(const MessageCounts& other);
  MessageCounts operator-(const MessageCounts& before) const;
};

/// Where a rank's messages are counted; outlives its communicator. Thread-safe.
class MessageCounter {
 public:
  void note_collective(uint64_t bytes) {
    ++collectives_;
    collective_bytes_ += bytes;
  }
  void note_message(uint64_t bytes) {
    ++messages_;
    message_bytes_ += bytes;
  }
  MessageCounts counts() const { return {collectives_, collective_bytes_, messages_, message_bytes_}; }

 private:
  std::atomic<uint64_t> collectives_{0}, collective_bytes_{0}, messages_{0}, message_bytes_{0};
};

/// The same ranks, counted. `counter` outlives it.
std::unique_ptr<Communicator> counted(std::unique_ptr<Communicator> ranks, MessageCounter& counter);

}  // namespace varve::count
