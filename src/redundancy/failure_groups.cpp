#include "redundancy/failure_groups.h"

#include <fmt/format.h>

#include <map>

namespace varve {

namespace {
std::string advice(size_t node_count) {
  if (node_count < 2) return "use two nodes or more, or no redundancy";
  return fmt::format("use more nodes, or xor:{}, or partner", node_count);
}
}  // namespace

Result<FailureGroups> plan_failure_groups(std::span<const std::string> node_of_rank, const Redundancy& redundancy) {
  FailureGroups plan;
  std::map<std::string, uint32_t> ordinals;
  for (const std::string& node : node_of_rank) {
    const auto [found, is_new] = ordinals.emplace(node, static_cast<uint32_t>(plan.nodes.size()));
    if (is_new) plan.nodes.push_back(node);
    plan.node_of_rank.push_back(found->second);
  }
  const auto node_count = static_cast<uint32_t>(plan.nodes.size());
  const uint32_t group_count = node_count / redundancy.nodes_min();
  if (group_count == 0) {
    return Status::invalid_argument(
        fmt::format("this redundancy needs {} nodes, and the job has {}", redundancy.nodes_min(), node_count),
        redundancy.text(), advice(node_count));
  }
  // In turns: neighbours are in different groups, and what is left over goes to the first ones.
  plan.groups.resize(group_count);
  for (uint32_t node = 0; node < node_count; ++node) {
    std::vector<uint32_t>& members = plan.groups[node % group_count].nodes;
    plan.place_of_node.push_back({node % group_count, static_cast<uint32_t>(members.size())});
    members.push_back(node);
  }
  return plan;
}

}  // namespace varve
