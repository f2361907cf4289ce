#include "redundancy/leader_group.h"

#include <algorithm>

#include "comm/agreement.h"
#include "comm/subset_communicator.h"

namespace varve {

Result<std::unique_ptr<LeaderGroup>> LeaderGroup::create(Communicator& leaders, std::vector<uint32_t> members) {
  std::unique_ptr<LeaderGroup> group(new LeaderGroup(leaders, std::move(members)));
  if (!group->is_member()) return group;
  const auto own = std::find(group->members_.begin(), group->members_.end(), leaders.rank());
  if (own == group->members_.end()) return Status::internal("a node is in a failure group without being a member");
  group->position_ = static_cast<uint32_t>(own - group->members_.begin());
  if (leaders.concurrent()) {
    VARVE_ASSIGN(group->own_, make_subset_communicator(leaders, group->members_, 0));
  }
  return group;
}

Result<std::vector<ByteVector>> LeaderGroup::gather(ByteSpan mine) {
  if (own_ != nullptr) return own_->all_gather(mine);
  std::vector<ByteVector> gathered(members_.size());
  // One after another, so that no rank has to hold what concerns other groups.
  for (uint32_t rank = 0; rank < leaders_.rank_count(); ++rank) {
    VARVE_ASSIGN(ByteVector given, leaders_.broadcast(rank == leaders_.rank() ? mine : ByteSpan(), rank));
    const auto member = std::find(members_.begin(), members_.end(), rank);
    if (member != members_.end()) gathered[static_cast<size_t>(member - members_.begin())] = std::move(given);
  }
  return gathered;
}

std::unique_ptr<CommunicatorExchange> LeaderGroup::make_exchange(MemberReader* own) {
  if (own_ == nullptr) return std::make_unique<CommunicatorExchange>(leaders_, members_, own);
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < own_->rank_count(); ++rank) ranks.push_back(rank);
  return std::make_unique<CommunicatorExchange>(*own_, std::move(ranks), own);
}

Status agree_among_nodes(Communicator& leaders, const std::string& node, const Status& mine) {
  const std::string context = node.empty() ? std::string() : "node " + node;
  const Status named = mine.ok() || context.empty() ? mine : mine.with_context(context);
  VARVE_ASSIGN(const std::vector<RankFailure> failures, gather_failures(leaders, named));
  return failures.empty() ? Status() : failures.front().what;
}

}  // namespace varve
