#include "store/set_needs.h"

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
  return needs_of_set(record, store.score().score_bytes(), progress,
                      [&](const Score& score, const ArenaId& hint) -> Result<std::optional<ByteVector>> {
                        VARVE_ASSIGN(ByteVector content, store.read_node(score, hint));
                        return std::optional(std::move(content));
                      });
}

Result<SetNeeds> needs_of_set(const SetRecord& record, size_t score_bytes, ProgressSink& progress,
                              const ReadNode& read) {
  SetNeeds needs;
  auto read_noted = [&](const Score& score, const ArenaId& hint) {
    needs.nodes.try_emplace(score, hint);
    return read(score, hint);
  };
  for (const GroupRecord& group : record.groups) {
    VARVE_ASSIGN(const std::optional<ByteVector> root_content, read_noted(group.root, group.hint));
    if (!root_content) continue;
    VARVE_ASSIGN(const Root root, decode_root(*root_content, score_bytes));
    for (const LeafLink& link : root.leaves) {
      if (progress.cancelled()) return Status::cancelled();
      VARVE_ASSIGN(std::optional<ByteVector> content, read_noted(link.score, link.hint));
      if (!content) continue;
      VARVE_ASSIGN(const std::optional<Leaf> leaf, decode_leaf_of(std::move(*content), score_bytes, read_noted));
      if (leaf) add_leaf(*leaf, needs);
    }
  }
  for (auto& [score, need] : needs.packs) {
    join_ranges(need.ranges);
    need.ranges.shrink_to_fit();
  }
  return needs;
}

}  // namespace varve
