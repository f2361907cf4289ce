#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "core/bytes.h"
#include "core/sync.h"

namespace varve {

/// Messages on their way to one rank of this process; they wait in memory until they are taken. Thread-safe.
class Mailbox {
 public:
  /// io_error if the rank that they are for has ended.
  Status put(uint32_t from, uint32_t tag, ByteSpan message);
  /// Waits for the next message of `from` with this tag, and fills `into` with it. corrupt: it has another size; it is
  /// gone then. io_error: `from` has ended, and has left no more.
  Status take(uint32_t from, uint32_t tag, MutableByteSpan into);

  /// No more will come from this rank.
  void sender_ended(uint32_t from);
  /// The rank that the messages are for has ended.
  void close();

 private:
  Mutex mutex_;  ///< guards everything below
  ConditionVariable changed_;
  std::map<std::pair<uint32_t, uint32_t>, std::deque<ByteVector>> waiting_;  ///< by sender and tag
  std::set<uint32_t> ended_;
  bool closed_ = false;
};

/// What calls that need a rank which has ended give.
Status rank_ended(uint32_t rank);

/// What a message of another size than expected gives.
Status wrong_message_size(uint32_t from, uint64_t bytes, uint64_t expected_bytes);

/// invalid_argument unless `rank` is one of the `rank_count` ranks.
Status check_rank(uint32_t rank, uint32_t rank_count);

}  // namespace varve
