#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/thread_pool.h"
#include "redundancy/block_exchange.h"
#include "varve/communicator.h"

namespace varve {

/// An exchange among ranks that share nothing. In a round all tell what they ask of whom; then they serve and receive,
/// by messages where the communicator is concurrent() (a thread of the exchange sends while the caller receives), else
/// by collective calls, with which more travels than anybody asked for. Memory: one block, or with collective calls
/// some 16 MiB, whatever the others ask for.
///
/// What ranks tell is not trusted: one whose requests make no sense asks for nothing. One that has failed goes on with
/// rounds in which it asks for nothing (BlockExchange); each rank calls finish() at the end, also one that never called
/// fetch(), so that all may have different numbers of rounds.
class CommunicatorExchange final : public BlockExchange {
 public:
  /// Messages have this tag of the communicator's.
  static constexpr uint32_t kTag = 0;
  /// A round asks for at most so many blocks, each a block of parity with its checksum at most.
  static constexpr size_t kRequestsMax = 1024;

  /// `rank_of_member`: by position. `own` reads what this rank serves; null if it is no member. Both communicator and
  /// reader outlive the exchange.
  CommunicatorExchange(Communicator& ranks, std::vector<uint32_t> rank_of_member, MemberReader* own);

  /// Starts the thread that sends, if there are messages. All ranks have to be OK before any begins with rounds.
  /// resource_limit: the system refuses a thread.
  Status prepare();
  Status fetch(std::span<const BlockRequest> requests, std::span<const MutableByteSpan> into) override;

  /// Takes part in the rounds of the others until all ranks have called it.
  Status finish();

 private:
  /// A block that one rank asks of another.
  struct Request {
    uint32_t server = 0;
    BlockRequest::Kind kind = BlockRequest::Kind::stream;
    uint64_t offset = 0, bytes = 0;
  };
  /// What all ranks ask for in a round, by rank.
  struct Round {
    std::vector<std::vector<Request>> requests;
    bool all_done = false;
  };
  struct Transfer;

  Status check_requests(std::span<const BlockRequest> requests, std::span<const MutableByteSpan> into) const;
  Result<Round> tell(std::span<const BlockRequest> requests, bool done);
  static std::optional<std::vector<Request>> decode(ByteSpan told, uint32_t rank_count, bool& done);

  Status exchange(const Round& round, std::span<const MutableByteSpan> into);
  Status exchange_by_messages(const Round& round, std::span<const MutableByteSpan> into);
  void serve_by_messages(const Round& round);
  Status receive_from(uint32_t server, MutableByteSpan into);
  Status exchange_collectively(const Round& round, std::span<const MutableByteSpan> into);
  Status exchange_wave(const std::vector<Transfer>& wave, std::span<const MutableByteSpan> into);
  /// Reads what is asked for into block_.
  Status read_block(const Request& request);
  Status not_served(uint32_t server, StatusCode code) const;

  Communicator& ranks_;
  const std::vector<uint32_t> rank_of_member_;
  MemberReader* const own_;
  Buffer block_;
  std::optional<ThreadPool> sender_;  ///< one thread, if there are messages
};

}  // namespace varve
