#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "redundancy/communicator_exchange.h"
#include "varve/communicator.h"

namespace varve {

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
