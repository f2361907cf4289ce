#include "runtime/group_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "comm/gather.h"
#include "hash/score.h"

namespace varve {

namespace {
/// What the members of a group have in common: the number in the order of ranks, the node, the socket.
using GroupKey = std::tuple<uint32_t, std::string, uint32_t>;

GroupKey key_of(uint32_t rank, const RankPlace& place, const GroupRule& rule, bool may_cross) {
  switch (rule.kind) {
    case GroupRule::Kind::rank: return {rank, {}, 0};
    case GroupRule::Kind::socket: return {0, place.node, place.socket};
    case GroupRule::Kind::node: return {0, place.node, 0};
    case GroupRule::Kind::count: return {rank / std::max(rule.count, 1u), may_cross ? std::string() : place.node, 0};
  }
  return {};
}

std::vector<RankGroup> split(const std::vector<RankPlace>& places, const GroupRule& rule, bool may_cross) {
  std::map<GroupKey, RankGroup> by_key;
  for (uint32_t rank = 0; rank < places.size(); ++rank) {
    by_key[key_of(rank, places[rank], rule, may_cross)].members.push_back(rank);
  }
  std::vector<RankGroup> groups;
  for (auto& [key, group] : by_key) {
    for (uint32_t member : group.members) {
      if (places[member].node != places[group.leader()].node) group.remote.push_back(member);
    }
    groups.push_back(std::move(group));
  }
  std::sort(groups.begin(), groups.end(),
            [](const RankGroup& a, const RankGroup& b) { return a.leader() < b.leader(); });
  return groups;
}

std::vector<RankNode> nodes_of(const std::vector<RankPlace>& places) {
  std::vector<RankNode> nodes;
  std::map<std::string, size_t> ordinal_of;
  std::map<std::string, uint32_t> named;
  for (uint32_t rank = 0; rank < places.size(); ++rank) {
    const auto [found, added] = ordinal_of.emplace(places[rank].node, nodes.size());
    if (added) {
      const uint32_t number = ++named[places[rank].name];
      nodes.push_back({number == 1 ? places[rank].name : fmt::format("{}#{}", places[rank].name, number), {}});
    }
    nodes[found->second].ranks.push_back(rank);
  }
  return nodes;
}

Status split_groups(const GroupRule& rule) {
  if (rule.stay_on_nodes) {
    return Status::unsupported(
        fmt::format("groups of {} ranks would cross nodes, and each node has a store of its own: they were split",
                    rule.count),
        {}, "take group = \"node\"");
  }
  return Status::unsupported(
      fmt::format("groups of {} ranks would cross nodes, which needs MPI_THREAD_MULTIPLE: they were split", rule.count),
      {}, "initialise MPI with MPI_Init_thread(..., MPI_THREAD_MULTIPLE, ...), or take group = \"node\"");
}
}  // namespace

std::vector<uint32_t> GroupPlan::groups_of_node() const {
  std::vector<uint32_t> ordinals;
  for (uint32_t ordinal = 0; ordinal < groups.size(); ++ordinal) {
    if (std::binary_search(node().ranks.begin(), node().ranks.end(), groups[ordinal].leader()))
      ordinals.push_back(ordinal);
  }
  return ordinals;
}

uint32_t GroupPlan::own_of_node() const {
  const std::vector<uint32_t> ordinals = groups_of_node();
  return static_cast<uint32_t>(std::lower_bound(ordinals.begin(), ordinals.end(), own) - ordinals.begin());
}

std::string GroupPlan::group_name(uint32_t ordinal) const {
  const uint32_t leader = groups[ordinal].leader();
  const auto of_leader = std::find_if(nodes.begin(), nodes.end(), [&](const RankNode& one) {
    return std::binary_search(one.ranks.begin(), one.ranks.end(), leader);
  });
  return fmt::format("group {} of {} (rank {} on {})", ordinal + 1, count(), leader,
                     of_leader != nodes.end() ? of_leader->name : "a node without a name");
}

bool GroupPlan::is_remote(uint32_t rank) const {
  return std::binary_search(own_group().remote.begin(), own_group().remote.end(), rank);
}

GroupPlan plan_groups(const std::vector<RankPlace>& places, const GroupRule& rule, bool concurrent, uint32_t rank) {
  GroupPlan plan;
  plan.groups = split(places, rule, /*may_cross=*/true);
  plan.crosses_nodes =
      std::any_of(plan.groups.begin(), plan.groups.end(), [](const RankGroup& group) { return !group.remote.empty(); });
  if (plan.crosses_nodes && (!concurrent || rule.stay_on_nodes)) {
    plan.groups = split(places, rule, /*may_cross=*/false);
    plan.crosses_nodes = false;
    plan.warnings.push_back(split_groups(rule));
  }
  for (uint32_t ordinal = 0; ordinal < plan.groups.size(); ++ordinal) {
    const std::vector<uint32_t>& members = plan.groups[ordinal].members;
    if (std::binary_search(members.begin(), members.end(), rank)) plan.own = ordinal;
  }
  plan.concurrent = concurrent;
  plan.nodes = nodes_of(places);
  for (uint32_t ordinal = 0; ordinal < plan.nodes.size(); ++ordinal) {
    const std::vector<uint32_t>& ranks = plan.nodes[ordinal].ranks;
    if (std::binary_search(ranks.begin(), ranks.end(), rank)) plan.own_node = ordinal;
  }
  plan.node_rank_count = static_cast<uint32_t>(plan.node().ranks.size());
  return plan;
}

namespace {
/// What a rank tells of where it is: the text, or a hash of it, which no other node has either. All ranks are told.
std::string node_key(const std::string& node) {
  constexpr size_t kKeyBytes = 15;
  if (node.size() <= kKeyBytes) return node;
  const Score hash = ScoreFunction::preferred()(as_bytes(node));
  return std::string(as_text(ByteSpan(hash.bytes).first(kKeyBytes)));
}
}  // namespace

Result<GroupPlan> agree_on_groups(Communicator& ranks, const RankPlace& own_place, const GroupRule& rule) {
  std::array<uint64_t, 1> concurrent = {ranks.concurrent() ? uint64_t{1} : uint64_t{0}};
  VARVE_TRY(ranks.all_min(concurrent));
  ByteVector mine;
  ByteWriter out(mine);
  out.text(node_key(own_place.node));
  out.le32(own_place.socket);
  out.text(own_place.name);
  VARVE_ASSIGN(const std::vector<Told> told, gather_told(ranks, mine));
  std::vector<RankPlace> places;
  for (const Told& of_rank : told) {
    ByteReader in(of_rank.bytes);
    RankPlace place;
    VARVE_ASSIGN(const std::string_view node, in.text());
    place.node = node;
    VARVE_ASSIGN(place.socket, in.le32());
    VARVE_ASSIGN(const std::string_view name, in.text());
    place.name = name;
    places.push_back(std::move(place));
  }
  if (places.size() != ranks.rank_count()) return Status::internal("a rank did not say where it runs");
  return plan_groups(places, rule, concurrent[0] == 1, ranks.rank());
}

}  // namespace varve
