#include "store/needs.h"

#include "store/pack_ranges.h"

namespace varve {

namespace {
Status mark_leaf(const Leaf& leaf, Needs& needs) {
  for (const TreeFile& file : leaf.files) {
    for (const std::vector<Reference>& stream : file.streams) {
      for (const Reference& reference : stream) {
        if (reference.pack == Reference::kPattern) continue;
        add_range(needs.packs[leaf.packs[reference.pack].score], {reference.offset, reference.bytes});
      }
    }
  }
  return {};
}

}  // namespace

Result<Needs> needs_of_sets(const Store& store) {
  const Catalog catalog(store);
  Needs needs;
  VARVE_ASSIGN(std::vector<SetName> sets, catalog.sets());
  for (const SetName& name : sets) {
    Result<SetRecord> record = catalog.read(name);
    if (!record.ok() && record.status().code() == StatusCode::not_found) continue;  // dropped just now
    auto unknown = [&](const Status& status) {
      return status.with_context("nothing was removed, as it is unknown what the set " + name.to_string() + " needs")
          .with_hint("`varve drop " + name.to_string() + "` gives the set up");
    };
    if (!record.ok()) return unknown(record.status());
    for (const GroupRecord& group : record->groups) {
      needs.nodes.insert(group.root);
      Result<Root> root = store.read_root(group.root, group.hint);
      if (!root.ok()) return unknown(root.status());
      for (const LeafLink& link : root->leaves) {
        needs.nodes.insert(link.score);
        Result<Leaf> leaf = store.read_leaf(link);
        if (!leaf.ok()) return unknown(leaf.status());
        VARVE_TRY(mark_leaf(*leaf, needs));
      }
    }
  }
  for (auto& [score, ranges] : needs.packs) join_ranges(ranges);
  return needs;
}

}  // namespace varve
