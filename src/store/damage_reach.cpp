#include "store/damage_reach.h"

#include <algorithm>
#include <vector>

#include "store/catalog.h"
#include "store/pack_ranges.h"
#include "store/set_part.h"

namespace varve {

namespace {
/// What of a pack can be read from all its copies together.
std::vector<Extent> whole_extents(const Store& store, const Score& score, const ArenaId& hint) {
  const Result<std::vector<Store::Place>> places = store.find_pack(score, hint, true);
  std::vector<Extent> extents;
  if (!places.ok()) return extents;
  for (const Store::Place& place : *places) {
    Result<Pack> pack = place.arena->read_pack(place.ordinal);
    if (!pack.ok()) continue;
    const std::vector<Extent> here = pack->whole_extents();
    extents.insert(extents.end(), here.begin(), here.end());
  }
  join_ranges(extents);
  return extents;
}

bool contains(const std::vector<Extent>& extents, uint64_t offset, uint64_t bytes) {
  auto after = std::upper_bound(extents.begin(), extents.end(), offset,
                                [](uint64_t value, const Extent& extent) { return value < extent.offset; });
  if (after == extents.begin()) return false;
  const Extent& at = *--after;
  return bytes <= at.bytes && offset - at.offset <= at.bytes - bytes;
}

class Search {
 public:
  Search(const Store& store, ProgressSink& progress) : store_(store), progress_(progress) {}

  Status look_at_packs(const std::map<Score, ArenaId>& packs) {
    for (const auto& [score, hint] : packs) {
      if (progress_.cancelled()) return Status::cancelled();
      whole_.emplace(score, whole_extents(store_, score, hint));
    }
    return {};
  }

  void look_at_record(const std::string& name, const Result<SetRecord>& record) {
    if (!record.ok()) return;
    for (const GroupRecord& group : record->groups) {
      const Result<Root> root = store_.read_root(group.root, group.hint);
      if (!root.ok()) continue;
      for (const LeafLink& link : root->leaves) {
        const Result<Leaf> leaf = store_.read_leaf(link);
        if (leaf.ok()) look_at_leaf(name, *leaf);
      }
    }
  }

  std::map<Score, Users> take() && { return std::move(users_); }

 private:
  void look_at_leaf(const std::string& name, const Leaf& leaf) {
    std::vector<const std::vector<Extent>*> whole_of;  // null: a pack that is not asked for
    for (const PackLink& link : leaf.packs) {
      const auto found = whole_.find(link.score);
      whole_of.push_back(found == whole_.end() ? nullptr : &found->second);
    }
    for (const TreeFile& file : leaf.files) {
      for (const std::vector<Reference>& stream : file.streams) {
        for (const Reference& reference : stream) {
          if (reference.pack == Reference::kPattern) continue;
          const std::vector<Extent>* whole = whole_of[reference.pack];
          if (whole == nullptr || contains(*whole, reference.offset, reference.bytes)) continue;
          users_[leaf.packs[reference.pack].score].add(name, file.path);
        }
      }
    }
  }

  const Store& store_;
  ProgressSink& progress_;
  std::map<Score, std::vector<Extent>> whole_;
  std::map<Score, Users> users_;
};
}  // namespace

void Users::add(const std::string& set, const std::string& path) {
  sets.insert(set);
  if (files.size() < kAffectedFilesMax) files.insert(set + ":" + path);
}

void Users::add(const Users& more) {
  sets.insert(more.sets.begin(), more.sets.end());
  for (const std::string& file : more.files) {
    if (files.size() < kAffectedFilesMax) files.insert(file);
  }
}

Result<std::map<Score, Users>> users_of_lost_chunks(const Store& store, const std::map<Score, ArenaId>& packs,
                                                    ProgressSink& progress) {
  Search search(store, progress);
  VARVE_TRY(search.look_at_packs(packs));
  // Parts first: one that becomes a set meanwhile is seen as such.
  VARVE_ASSIGN(const std::vector<PartName> parts, list_parts(store));
  for (const PartName& part : parts) {
    if (progress.cancelled()) return Status::cancelled();
    search.look_at_record(part.to_string(), read_part(store, part));
  }
  const Catalog catalog(store);
  VARVE_ASSIGN(const std::vector<SetName> sets, catalog.sets());
  for (const SetName& name : sets) {
    if (progress.cancelled()) return Status::cancelled();
    search.look_at_record(name.to_string(), catalog.read(name));
  }
  return std::move(search).take();
}

}  // namespace varve
