#include "level/set_needs.h"

#include "store/pack_ranges.h"

namespace varve {

uint64_t SetNeeds::PackNeed::bytes() const {
  uint64_t sum = 0;
  for (const Extent& range : ranges) sum += range.bytes;
  return sum;
}

namespace {
void add_leaf(const Leaf& leaf, SetNeeds& needs) {
  for (const TreeFile& file : leaf.files) {
    for (const std::vector<Reference>& stream : file.streams) {
      for (const Reference& reference : stream) {
        if (reference.pack == Reference::kPattern) continue;
        const PackLink& link = leaf.packs[reference.pack];
        SetNeeds::PackNeed& need = needs.packs.try_emplace(link.score, SetNeeds::PackNeed{link.hint, {}}).first->second;
        add_range(need.ranges, {reference.offset, reference.bytes});
      }
    }
  }
}
}  // namespace

Result<SetNeeds> needs_of_set(const Store& store, const SetRecord& record, ProgressSink& progress) {
  SetNeeds needs;
  for (const GroupRecord& group : record.groups) {
    needs.nodes.try_emplace(group.root, group.hint);
    VARVE_ASSIGN(const Root root, store.read_root(group.root, group.hint));
    for (const LeafLink& link : root.leaves) {
      if (progress.cancelled()) return Status::cancelled();
      needs.nodes.try_emplace(link.score, link.hint);
      VARVE_ASSIGN(const Leaf leaf, store.read_leaf(link));
      add_leaf(leaf, needs);
    }
  }
  for (auto& [score, need] : needs.packs) {
    join_ranges(need.ranges);
    need.ranges.shrink_to_fit();
  }
  return needs;
}

}  // namespace varve
