#include "aggregate/sharing.h"

#include <algorithm>
#include <iterator>

#include "aggregate/set_files.h"
#include "store/catalog.h"
#include "store/pack_ranges.h"

namespace varve {

namespace {
bool is_earlier(const SetRecord& other, const SetRecord& record) {
  if (other.created_s != record.created_s) return other.created_s < record.created_s;
  return other.name.job != record.name.job || other.name.step < record.name.step;
}

/// How many bytes of `uses`, each by itself, lie in the (joined) ranges.
uint64_t bytes_inside(const std::vector<Extent>& uses, const std::vector<Extent>& ranges) {
  uint64_t bytes = 0;
  for (const Extent& use : uses) {
    const uint64_t end = use.offset + use.bytes;
    auto range = std::upper_bound(ranges.begin(), ranges.end(), use.offset, [](uint64_t offset, const Extent& extent) {
      return offset < extent.offset + extent.bytes;
    });
    for (; range != ranges.end() && range->offset < end; ++range)
      bytes += std::min(end, range->offset + range->bytes) - std::max(use.offset, range->offset);
  }
  return bytes;
}

uint64_t bytes_inside(const PackUses& uses, const PackUses& ranges) {
  uint64_t bytes = 0;
  for (const auto& [score, here] : ranges) bytes += bytes_inside(uses.at(score), here);
  return bytes;
}

/// What of the packs in `uses` a set refers to, joined.
Result<PackUses> ranges_of_set(const Store& store, const SetRecord& record, const PackUses& uses) {
  PackUses ranges;
  VARVE_TRY(for_each_leaf(store, record, [&](const Leaf& leaf) -> Status {
    std::vector<std::vector<Extent>*> of_pack;  // null: a pack that is not asked for
    for (const PackLink& link : leaf.packs)
      of_pack.push_back(uses.contains(link.score) ? &ranges[link.score] : nullptr);
    for (const TreeFile& file : leaf.files) {
      for (const std::vector<Reference>& stream : file.streams) {
        for (const Reference& reference : stream) {
          if (reference.pack == Reference::kPattern || of_pack[reference.pack] == nullptr) continue;
          add_range(*of_pack[reference.pack], {reference.offset, reference.bytes});
        }
      }
    }
    return {};
  }));
  for (auto& [score, here] : ranges) join_ranges(here);
  return ranges;
}

/// The sets that were there when `record` was made, as far as they still are.
Result<std::vector<SetRecord>> earlier_sets(const Store& store, const SetRecord& record, ProgressSink& progress) {
  const Catalog catalog(store);
  VARVE_ASSIGN(const std::vector<SetName> names, catalog.sets());
  std::vector<SetRecord> earlier;
  for (const SetName& name : names) {
    if (progress.cancelled()) return Status::cancelled();
    if (name == record.name) continue;
    Result<SetRecord> other = catalog.read(name);
    if (other.ok() && is_earlier(*other, record)) earlier.push_back(std::move(*other));
    if (!other.ok() && other.status().code() != StatusCode::not_found) progress.warning(other.status());
  }
  return earlier;
}
}  // namespace

Result<Sharing> find_sharing(const Store& store, const SetRecord& record, const PackUses& uses,
                             ProgressSink& progress) {
  Sharing sharing;
  if (uses.empty()) return sharing;
  progress.phase("looking at earlier sets");
  VARVE_ASSIGN(const std::vector<SetRecord> earlier, earlier_sets(store, record, progress));
  uint64_t total = 0;
  for (const SetRecord& other : earlier) total += other.raw_bytes;
  progress.total(total);
  PackUses all;
  for (const SetRecord& other : earlier) {
    if (progress.cancelled()) return Status::cancelled();
    const Result<PackUses> ranges = ranges_of_set(store, other, uses);
    progress.advance(other.raw_bytes);
    if (!ranges.ok()) {
      if (ranges.status().code() != StatusCode::corrupt) return ranges.status();
      if (Catalog(store).unless_dropped(other.name, ranges.status()).code() == StatusCode::not_found) continue;
      progress.warning(ranges.status().with_context("it is unknown what is shared with " + other.name.to_string()));
      continue;
    }
    const uint64_t bytes = bytes_inside(uses, *ranges);
    if (bytes == 0) continue;
    sharing.with.emplace(other.name, bytes);
    for (const auto& [score, here] : *ranges) {
      std::vector<Extent>& joined = all[score];
      joined.insert(joined.end(), here.begin(), here.end());
      join_ranges(joined);
    }
  }
  sharing.bytes = bytes_inside(uses, all);
  return sharing;
}

}  // namespace varve
