#include "level/own_folder.h"

#include <fmt/format.h>

#include <algorithm>

#include "comm/agreement.h"

namespace varve {

namespace {
/// What a node leaves in its folder for a moment, under a name that other runs take for a leftover (FORMAT.md, "The
/// folder of a store").
std::string mark_name(UniqueId run, uint32_t node) {
  for (size_t i = 0; i < sizeof node; ++i) run.bytes[i] ^= static_cast<std::byte>(node >> (8 * i));
  return fmt::format("varve.store.{}.tmp", run.hex());
}

Status look_for_others(const RankSeat& seat, FileSystem& files, const std::string& store, const UniqueId& run) {
  VARVE_ASSIGN(const std::vector<DirectoryEntry> entries, files.list(store));
  for (uint32_t node = 0; node < seat.nodes.size(); ++node) {
    const std::string mark = mark_name(run, node);
    const bool there =
        std::any_of(entries.begin(), entries.end(), [&](const DirectoryEntry& entry) { return entry.name == mark; });
    if (!there || node == seat.own_node) continue;
    return Status::invalid_argument(fmt::format("the nodes {} and {} see the same folder, and each should have its own",
                                                seat.nodes[node].name, seat.node().name),
                                    store, "name a folder on a disk of the node, or dir: for one that all share");
  }
  return {};
}
}  // namespace

Status check_own_folders(Communicator& ranks, const RankSeat& seat, FileSystem& files, const std::string& store,
                         const UniqueId& run) {
  const bool speaks = seat.node().leader == ranks.rank();
  const std::string mark = join_path(store, mark_name(run, seat.own_node));
  // Whether a full disk can be used is for checkpoints to find out.
  if (speaks) files.create(mark).status().ignore("the other nodes then see nothing");
  VARVE_TRY(ranks.barrier());
  Status alone = agree(ranks, speaks ? look_for_others(seat, files, store, run) : Status());
  // Nobody's goes before all have looked.
  if (speaks) files.remove(mark).ignore("it is in nobody's way");
  return alone;
}

}  // namespace varve
