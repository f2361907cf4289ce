#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "core/file_system.h"
#include "core/thread_pool.h"
#include "redundancy/member_files.h"
#include "redundancy/parity_group.h"
#include "varve/communicator.h"
#include "varve/status.h"

namespace varve {

/// A range of bytes that a member has and another one asks for.
struct BlockRequest {
  enum class Kind : uint8_t { stream, parity_file };
  uint32_t member = 0;
  Kind kind = Kind::stream;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

/// How the members of a failure group get blocks from each other.
///
/// Redundancy works in rounds. In each round, **every** member calls fetch() once, also those that ask for nothing and
/// those for which something has gone wrong; and all have the same number of rounds. So an implementation may make a
/// round a collective operation, in which a member serves the others (by MemberReader) while it waits for its own.
class BlockExchange {
 public:
  virtual ~BlockExchange() = default;
  /// Fills into[i] with what requests[i] asks for. Fails if any of them cannot be fulfilled; that is told to the member
  /// that asked, and the round goes on for the others. The bytes are not trusted: who asked checks them.
  virtual Status fetch(std::span<const BlockRequest> requests, std::span<const MutableByteSpan> into) = 0;
};

/// An exchange over the members' folders themselves, where one process can reach all of them. One thread at a time.
class FolderExchange final : public BlockExchange {
 public:
  struct Place {
    FileSystem* fs = nullptr;  ///< outlives the exchange
    std::string folder;
  };
  /// `places` by position; `group` outlives it.
  FolderExchange(const ParityGroup& group, const std::vector<Place>& places);
  Status fetch(std::span<const BlockRequest> requests, std::span<const MutableByteSpan> into) override;

 private:
  std::vector<MemberReader> readers_;
};

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

/// The failure group of a node among all leaders: how its members talk. Where messages are there, each group talks for
/// itself; else all leaders take part in what any group says, by collective calls: so all of them make the same calls
/// of this class, in the same order, also those that are in no group.
class LeaderGroup {
 public:
  /// `members`: the leaders' ranks by position; empty if this rank is in no group. `leaders` outlives it; messages use
  /// its tags 0 and 1.
  static Result<std::unique_ptr<LeaderGroup>> create(Communicator& leaders, std::vector<uint32_t> members);

  bool is_member() const { return !members_.empty(); }
  /// Whether this rank has to make the calls below, or may.
  bool takes_part() const { return is_member() || !leaders_.concurrent(); }
  uint32_t position() const { return position_; }

  /// What each member gave, by position; nothing for a rank in no group.
  Result<std::vector<ByteVector>> gather(ByteSpan mine);
  /// `own` as for CommunicatorExchange, whose finish() all call at the end.
  std::unique_ptr<CommunicatorExchange> make_exchange(MemberReader* own);

 private:
  LeaderGroup(Communicator& leaders, std::vector<uint32_t> members) : leaders_(leaders), members_(std::move(members)) {}

  Communicator& leaders_;
  const std::vector<uint32_t> members_;
  uint32_t position_ = 0;
  std::unique_ptr<Communicator> own_;  ///< of the group alone; null if all leaders take part, or in no group
};

/// The same outcome on all leaders: OK if all have OK, else what the first of those had that failed, with the name of
/// its node. Collective.
Status agree_among_nodes(Communicator& leaders, const std::string& node, const Status& mine);

}  // namespace varve
