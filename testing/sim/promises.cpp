#include "sim/promises.h"

#include <fmt/format.h>

#include <algorithm>

namespace varve::sim {

namespace {
using enum Floor;

constexpr PromiseRow kTable[] = {
    {.levels = "`dir:`",
     .shared = true,
     .said = {"what is newer than the last set", "what is newer than the last set", "the same", "all"},
     .floor = {nearest_store, nearest_store, nearest_store, nothing}},
    {.levels = "`memory; dir:`",
     .memory = true,
     .shared = true,
     .said = {"nothing that is in memory, but for a checkpoint that was being copied",
              "what is newer than the last set", "that, or less: the other nodes' memory alone makes no checkpoint",
              "all but what is in memory"},
     .floor = {memory, nearest_store, nearest_store, nothing}},
    {.levels = "`memory; local:`",
     .memory = true,
     .local = true,
     .said = {"as above", "what is newer than the last set that all nodes have", "all", "–"},
     .floor = {memory, nearest_store, nothing, nearest_store}},
    {.levels = "`memory; local:; partner` or `xor:`, `rs:`",
     .memory = true,
     .local = true,
     .redundancy = true,
     .said = {"as above", "the same",
              "what is newer than the last protected set, for as many nodes of a group as the code says", "–"},
     .floor = {memory, nearest_store, redundancy, nearest_store}},
    {.levels = "`memory; local:; dir:`",
     .memory = true,
     .local = true,
     .shared = true,
     .said = {"as above", "the same", "what is newer than the last set of `dir:`", "nothing that the nodes have"},
     .floor = {memory, nearest_store, farther_store, nearest_store}},
    {.levels = "the last two together",
     .memory = true,
     .local = true,
     .redundancy = true,
     .shared = true,
     .said = {"as above", "the same",
              "what is newer than the last protected set; of more nodes than the code says, than the last set of "
              "`dir:`",
              "nothing that the nodes have"},
     .floor = {memory, nearest_store, redundancy, nearest_store}},
};
}  // namespace

std::span<const PromiseRow> promise_table() { return kTable; }

Floor floor_of(const std::vector<LevelSpec>& levels, Loss loss, uint32_t lost_nodes) {
  PromiseRow asked;
  uint32_t losses_max = 0;
  for (const LevelSpec& level : levels) {
    asked.memory = asked.memory || level.kind == &kMemoryLevel;
    asked.local = asked.local || level.is_of_node();
    asked.shared = asked.shared || (level.holds_sets() && !level.is_of_node());
    if (level.kind != &kRedundancyLevel) continue;
    asked.redundancy = true;
    losses_max = level.redundancy.losses_max();
  }
  // Without memory, what is in it is nobody's promise; else the row is the same.
  const bool in_memory = asked.memory;
  if (asked.local) asked.memory = true;
  const auto row = std::find_if(std::begin(kTable), std::end(kTable), [&](const PromiseRow& candidate) {
    return candidate.memory == asked.memory && candidate.local == asked.local &&
           candidate.redundancy == asked.redundancy && candidate.shared == asked.shared;
  });
  if (row == std::end(kTable)) return nothing;
  const Floor floor = row->floor[static_cast<size_t>(loss)];
  if (floor == memory && !in_memory) return nearest_store;
  if (floor == redundancy && lost_nodes > losses_max) return asked.shared ? farther_store : nothing;
  return floor;
}

std::string promise_table_text() {
  std::string text;
  for (const PromiseRow& row : kTable) {
    text += fmt::format("| {} |", row.levels);
    for (const std::string_view cell : row.said) text += fmt::format(" {} |", cell);
    text += "\n";
  }
  return text;
}

}  // namespace varve::sim
