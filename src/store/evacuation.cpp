#include "store/evacuation.h"

#include <algorithm>

#include "format/tree.h"
#include "store/needs.h"
#include "store/stored_copies.h"

namespace varve {

namespace {
std::vector<uint64_t> runs_of(const std::vector<bool>& held) {
  std::vector<uint64_t> runs;
  for (const bool here : held) {
    // Runs alternate, beginning with held chunks: an even number of them means that the next run is of held ones.
    const bool last_run_held = runs.size() % 2 == 1;
    if (runs.empty() || last_run_held != here) {
      if (runs.empty() && !here) runs.push_back(0);
      runs.push_back(0);
    }
    ++runs.back();
  }
  return runs;
}
}  // namespace

PackShape flat_shape(const std::string& class_key, uint64_t bytes) {
  ElementType type = element_type_of_class(class_key);
  if (bytes % type.bytes != 0) type = {};
  return {type, {Run{bytes / type.bytes, {}, false}}};
}

Result<ByteVector> bytes_of_chunks(Pack& pack, const std::vector<bool>& wanted) {
  ByteVector raw;
  uint64_t offset = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const uint32_t chunk_bytes = pack.meta().chunks[i].bytes;
    if (wanted[i]) {
      VARVE_ASSIGN(const ByteSpan bytes, pack.range(offset, chunk_bytes));
      raw.insert(raw.end(), bytes.begin(), bytes.end());
    }
    offset += chunk_bytes;
  }
  return raw;
}

Result<EncodedPack> partial_pack(Pack& pack, const std::vector<Extent>& ranges) {
  const std::vector<bool> wanted = chunks_in_ranges(pack.meta(), ranges);
  VARVE_ASSIGN(const ByteVector raw, bytes_of_chunks(pack, wanted));
  return encode_partial_pack(pack.meta(), wanted, raw);
}

Result<EncodedPack> encode_partial_pack(PackMeta table, const std::vector<bool>& held, ByteSpan raw) {
  table.held_runs = runs_of(held);
  VARVE_ASSIGN(const std::string chain_name, recipe_name(table.recipe));
  const PackShape shape = flat_shape(table.class_key, raw.size());
  VARVE_ASSIGN(const CodecChain chain, CodecChain::parse(chain_name));
  VARVE_ASSIGN(EncodedBytes encoded, encode_chain(chain, raw, shape));
  table.recipe = std::move(encoded.recipe);
  return EncodedPack{std::move(table), std::move(encoded.body)};
}

Status Evacuation::empty(const std::vector<ArenaId>& victims) {
  const Status copied = copy_what_is_needed(victims);
  if (!copied.ok() && lease_ != nullptr && lease_->lost()) {
    return Status::busy("another prune took this one for dead while it copied what is still needed", store_.path(),
                        "prune again");
  }
  return copied;
}

Status Evacuation::copy_what_is_needed(const std::vector<ArenaId>& victims) {
  for (const ArenaId& id : victims) {
    Result<std::shared_ptr<ArenaReader>> arena = store_.arena(id);
    if (arena.ok()) {
      VARVE_TRY(empty(**arena));
    } else if (arena.status().code() != StatusCode::not_found) {  // not there: another prune has removed it
      progress_.warning(arena.status().with_context("a damaged arena is left alone"));
    }
  }
  if (writer_ == nullptr) return {};
  const std::unique_ptr<SpreadWriter> full = std::move(writer_);
  VARVE_TRY(full->seal());
  return store_.backend().settle(store_.arenas_path());  // durable before what it replaces goes
}

/// Where what is copied goes. On a full disk, what need not be copied goes without it.
Result<SpreadWriter*> Evacuation::writer() {
  if (lease_ == nullptr) {
    VARVE_ASSIGN(lease_, WriterLease::acquire(store_));
  }
  if (writer_ == nullptr) {
    writer_ = std::make_unique<SpreadWriter>(store_, *lease_, writer_count_++,
                                             ArenaWriterOptions{.background = false, .buffer_bytes = 1_MiB});
  }
  return writer_.get();
}

Status Evacuation::find_homes() {
  // Marks were set before they are read here: of two prunes that would each rely on what the other removes, one sees
  // the other's mark.
  VARVE_ASSIGN(std::vector<ArenaId> condemned_list, list_condemned(store_));
  VARVE_ASSIGN(std::vector<ArenaId> arenas, store_.list_arenas());
  // What is relied on must be as durable as the removal of what it stands in for.
  VARVE_TRY(store_.backend().settle(store_.arenas_path()));
  const std::set<ArenaId> condemned(condemned_list.begin(), condemned_list.end());
  std::erase_if(arenas, [&](const ArenaId& id) { return condemned.contains(id); });
  return each_arena(store_, arenas, [&](const ArenaId& id, const Result<std::shared_ptr<ArenaReader>>& arena) {
    if (!arena.ok()) return Status();
    const ArenaIndex& index = (*arena)->index();
    for (size_t i = 0; i < index.packs.size(); ++i) {
      auto needed = needs_.packs.find(index.packs[i].score);
      if (needed != needs_.packs.end() && holds_ranges(**arena, i, needed->second))
        pack_homes_.emplace(needed->first, id);
    }
    for (const FrameEntry& entry : index.nodes) {
      if (needs_.nodes.contains(entry.score)) node_homes_.emplace(entry.score, id);
    }
    return Status();
  });
}

// A home that nobody is about to lose needs no look: it is no worse off than before. Only when the other copy is to go,
// this one is read.

bool Evacuation::has_whole_home(const Score& pack, const std::vector<Extent>& ranges) {
  if (safe_.contains(pack)) return true;
  auto [begin, end] = pack_homes_.equal_range(pack);
  const bool whole = std::any_of(begin, end, [&](const auto& home) {
    Result<std::shared_ptr<ArenaReader>> arena = store_.arena(home.second);
    if (!arena.ok()) return false;
    const std::optional<size_t> ordinal = (*arena)->find_pack(pack);
    return ordinal && reads_ranges(**arena, *ordinal, ranges);
  });
  if (whole) safe_.insert(pack);
  return whole;
}

bool Evacuation::has_whole_home(const Score& node) {
  if (safe_.contains(node)) return true;
  auto [begin, end] = node_homes_.equal_range(node);
  const bool whole = std::any_of(begin, end, [&](const auto& home) {
    Result<std::shared_ptr<ArenaReader>> arena = store_.arena(home.second);
    if (!arena.ok()) return false;
    const std::optional<size_t> ordinal = (*arena)->find_node(node);
    return ordinal && (*arena)->read_node(*ordinal).ok();
  });
  if (whole) safe_.insert(node);
  return whole;
}

bool Evacuation::all_has_whole_home(const ArenaReader& arena) {
  const ArenaIndex& index = arena.index();
  return std::all_of(index.packs.begin(), index.packs.end(),
                     [&](const FrameEntry& entry) {
                       const auto needed = needs_.packs.find(entry.score);
                       return needed == needs_.packs.end() || has_whole_home(needed->first, needed->second);
                     }) &&
         std::all_of(index.nodes.begin(), index.nodes.end(), [&](const FrameEntry& entry) {
           return !needs_.nodes.contains(entry.score) || has_whole_home(entry.score);
         });
}

std::set<ArenaId> Evacuation::held_elsewhere(const std::set<ArenaId>& victims) {
  std::set<ArenaId> held;
  for (const ArenaId& id : victims) {
    if (progress_.cancelled()) break;
    const Result<std::shared_ptr<ArenaReader>> arena = store_.arena(id);
    if (arena.ok() && (*arena)->index_status().ok() && all_has_whole_home(**arena)) held.insert(id);
  }
  return held;
}

Status Evacuation::empty(const ArenaReader& arena) {
  const ArenaIndex& index = arena.index();
  for (size_t i = 0; i < index.packs.size(); ++i) {
    if (progress_.cancelled()) return Status::cancelled();
    auto needed = needs_.packs.find(index.packs[i].score);
    if (needed == needs_.packs.end() || has_whole_home(needed->first, needed->second)) continue;
    Status copied = copy_pack(arena, i, needed->second);
    // Without its codec, copies cannot be put together.
    if (copied.code() == StatusCode::corrupt || copied.code() == StatusCode::unsupported) {
      progress_.warning(copied.with_context("a damaged pack is left where it is"));
      continue;
    }
    VARVE_TRY(copied);
    safe_.insert(needed->first);
    ++copied_packs_;
  }
  for (size_t i = 0; i < index.nodes.size(); ++i) {
    const Score& score = index.nodes[i].score;
    if (!needs_.nodes.contains(score) || has_whole_home(score)) continue;
    Result<ByteVector> content = arena.read_node(i);
    if (!content.ok()) {
      progress_.warning(content.status().with_context("a damaged tree node is left where it is"));
      continue;
    }
    VARVE_ASSIGN(SpreadWriter* const to, writer());
    VARVE_TRY(to->append_node(score, *content));
    safe_.insert(score);
  }
  return {};
}

/// corrupt: what is needed of the pack is whole nowhere, not even in all copies together.
Status Evacuation::copy_pack(const ArenaReader& arena, size_t ordinal, const std::vector<Extent>& ranges) {
  if (holds_ranges(arena, ordinal, ranges)) {
    const Status copied = copy_what_it_holds(arena, ordinal, ranges);
    if (copied.code() != StatusCode::corrupt) return copied;
  }
  return copy_of_all_copies({arena.index().packs[ordinal].score, arena.id()}, ranges);
}

Status Evacuation::copy_what_it_holds(const ArenaReader& arena, size_t ordinal, const std::vector<Extent>& ranges) {
  const FrameEntry& entry = arena.index().packs[ordinal];
  uint64_t needed_bytes = 0;
  for (const Extent& range : ranges) needed_bytes += range.bytes;
  std::optional<EncodedPack> thinned;
  if (needed_bytes < entry.raw_bytes) {
    Result<Pack> pack = arena.read_pack(ordinal);
    Result<EncodedPack> thin = pack.ok() ? partial_pack(*pack, ranges) : Result<EncodedPack>(pack.status());
    // With a codec that this build lacks the pack is copied whole.
    if (!thin.ok() && thin.status().code() != StatusCode::unsupported) return thin.status();
    if (thin.ok()) thinned = std::move(*thin);
  }
  if (!thinned || thinned->body.size() + thinned->body.size() / 8 >= entry.body_bytes) {
    const Result<ArenaReader::RawFrame> frame = arena.read_raw(FrameKind::pack, ordinal);
    if (frame.ok()) {
      VARVE_ASSIGN(SpreadWriter* const to, writer());
      return to->append_copy(FrameKind::pack, entry, frame->meta, frame->body);
    }
    // Where only what nobody needs is damaged, the rest goes on without it.
    if (!thinned) return frame.status();
  }
  VARVE_ASSIGN(SpreadWriter* const to, writer());
  return to->append_pack(thinned->meta, thinned->body).status();
}

/// Copies that were thinned differently, or are damaged at different places, may hold together what none holds alone.
Status Evacuation::copy_of_all_copies(const PackLink& link, const std::vector<Extent>& ranges) {
  VARVE_ASSIGN(Pack pack, read_pack(store_, link, ranges));
  VARVE_ASSIGN(const EncodedPack thinned, partial_pack(pack, ranges));
  VARVE_ASSIGN(SpreadWriter* const to, writer());
  return to->append_pack(thinned.meta, thinned.body).status();
}

bool Evacuation::holds_unsafe(const std::vector<FrameEntry>& entries) const {
  return std::any_of(entries.begin(), entries.end(), [&](const FrameEntry& entry) {
    return !safe_.contains(entry.score) && (needs_.packs.contains(entry.score) || needs_.nodes.contains(entry.score));
  });
}

bool Evacuation::must_stay(const ArenaId& victim) {
  const Result<std::shared_ptr<ArenaReader>> arena = store_.arena(victim);
  if (!arena.ok() && arena.status().code() == StatusCode::not_found) return false;
  // What is in a victim was looked for when it was emptied: it is safe, or the victim stays. One that cannot be read,
  // or whose index is damaged, may hold more than was found in it.
  const bool readable = arena.ok() && (*arena)->index_status().ok();
  return readable ? holds_unsafe((*arena)->index().packs) || holds_unsafe((*arena)->index().nodes)
                  : !everything_is_safe();
}

bool Evacuation::everything_is_safe() {
  return std::all_of(needs_.packs.begin(), needs_.packs.end(),
                     [&](const auto& need) { return has_whole_home(need.first, need.second); }) &&
         std::all_of(needs_.nodes.begin(), needs_.nodes.end(), [&](const Score& node) { return has_whole_home(node); });
}

}  // namespace varve
