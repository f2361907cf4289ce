#pragma once

#include <array>

#include "core/bytes.h"
#include "varve/communicator.h"

namespace varve {

/// What a checkpoint thread and a member on another node tell each other, over Communicator::send() and receive().
///
/// The member begins: `full`, `lacks` or `ending`. After `full` the leader may ask (`begin`, then any `read` and
/// `check`, each of which gets a `reply`, and a `read` that is well also the bytes), and it ends the step with
/// `drained` and `finished`; after `lacks` with `finished` alone; after `ending` nothing more is said.
struct RelayMessage {
  enum class Kind : uint32_t { full = 1, lacks, ending, begin, read, check, drained, finished, reply };
  Kind kind = Kind::ending;
  uint64_t step = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;          ///< to read; in a reply to `begin`, of the image
  uint64_t payload_bytes = 0;  ///< of a second message that follows: a status, or news

  static constexpr uint32_t kTagToLeader = 1, kTagToMember = 2;
};

/// Sends a message and its payload.
Status send_relay(Communicator& ranks, uint32_t to, uint32_t tag, RelayMessage message, ByteSpan payload = {});
/// Waits for a message and its payload. corrupt: it makes no sense.
Result<RelayMessage> receive_relay(Communicator& ranks, uint32_t from, uint32_t tag, ByteVector& payload);

}  // namespace varve
