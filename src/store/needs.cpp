#include "store/needs.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "core/sync.h"
#include "core/thread_pool.h"
#include "store/commit.h"
#include "store/remarks.h"
#include "store/stored_copies.h"

namespace varve {

namespace {
/// How many ranges are added before they are joined again.
constexpr size_t kLooseRangesMax = 256;
/// How often the catalog may name nothing but sets that are not there when they are come to, and how long to wait.
constexpr uint64_t kAbsentListsMax = 100;
constexpr std::chrono::milliseconds kAbsentPause(5);
}  // namespace

double frame_bytes(const FrameEntry& entry) {
  return static_cast<double>(kFrameHeaderBytes + entry.meta_bytes) + static_cast<double>(entry.body_bytes);
}

void add_range(std::vector<Extent>& ranges, const Extent& range) {
  if (!ranges.empty() && ranges.back().offset + ranges.back().bytes == range.offset) {
    ranges.back().bytes += range.bytes;
    return;
  }
  ranges.push_back(range);
  if (ranges.size() % kLooseRangesMax == 0) join_ranges(ranges);
}

void join_ranges(std::vector<Extent>& ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
  size_t last = 0;
  for (size_t i = 1; i < ranges.size(); ++i) {
    const uint64_t end = ranges[last].offset + ranges[last].bytes;
    if (ranges[i].offset > end) {
      ranges[++last] = ranges[i];
    } else {
      ranges[last].bytes = std::max(end, ranges[i].offset + ranges[i].bytes) - ranges[last].offset;
    }
  }
  if (!ranges.empty()) ranges.resize(last + 1);
}

std::vector<bool> chunks_in_ranges(const PackMeta& meta, const std::vector<Extent>& ranges) {
  std::vector<bool> inside(meta.chunks.size(), false);
  size_t range = 0;
  uint64_t reach = 0;  // end of all ranges that begin before the chunk's end
  uint64_t offset = 0;
  for (size_t i = 0; i < meta.chunks.size(); ++i) {
    const uint64_t end = offset + meta.chunks[i].bytes;
    for (; range < ranges.size() && ranges[range].offset < end; ++range)
      reach = std::max(reach, ranges[range].offset + ranges[range].bytes);
    inside[i] = reach > offset;
    offset = end;
  }
  return inside;
}

bool holds_ranges(const ArenaReader& arena, size_t ordinal, const std::vector<Extent>& ranges) {
  const FrameEntry& entry = arena.index().packs[ordinal];
  if (!ranges.empty() && ranges.back().offset + ranges.back().bytes > entry.raw_bytes) return false;
  if (entry.missing_bytes == 0) return true;
  Result<PackMeta> meta = arena.read_pack_meta(ordinal);
  if (!meta.ok()) return false;
  const std::vector<bool> needed = chunks_in_ranges(*meta, ranges), held = meta->held();
  for (size_t i = 0; i < needed.size(); ++i) {
    if (needed[i] && !held[i]) return false;
  }
  return true;
}

bool reads_ranges(const ArenaReader& arena, size_t ordinal, const std::vector<Extent>& ranges) {
  Result<Pack> pack = arena.read_pack(ordinal);
  return pack.ok() && std::all_of(ranges.begin(), ranges.end(),
                                  [&](const Extent& range) { return pack->range(range.offset, range.bytes).ok(); });
}

namespace {
void mark_leaf(const Leaf& leaf, Needs& needs) {
  for (const NodeLink& piece : leaf.pieces) needs.nodes.insert(piece.score);
  for (const TreeFile& file : leaf.files) {
    for (const std::vector<Reference>& stream : file.streams) {
      for (const Reference& reference : stream) {
        if (reference.pack == Reference::kPattern) continue;
        add_range(needs.packs[leaf.packs[reference.pack].score], {reference.offset, reference.bytes});
      }
    }
  }
  // At once: else each of very many sets that need the same would add to it.
  for (const PackLink& pack : leaf.packs) {
    if (const auto found = needs.packs.find(pack.score); found != needs.packs.end()) join_ranges(found->second);
  }
}

/// What is needed, as several threads find it out, and as long as nobody wants them to stop.
class GatheredNeeds {
 public:
  explicit GatheredNeeds(const ProgressSink& progress) : progress_(progress) {}
  bool cancelled() const { return progress_.cancelled(); }
  void add_node(const Score& node) {
    const MutexLock lock(mutex_);
    needs_.nodes.insert(node);
  }
  void add_leaf(const Leaf& leaf) {
    const MutexLock lock(mutex_);
    mark_leaf(leaf, needs_);
  }
  void add_unknown() {
    const MutexLock lock(mutex_);
    needs_.uncertain = true;
  }
  Needs take() {
    const MutexLock lock(mutex_);
    return std::move(needs_);
  }

 private:
  const ProgressSink& progress_;
  Mutex mutex_;
  Needs needs_ VARVE_GUARDED_BY(mutex_);
};

Status mark_record(const Store& store, const SetRecord& record, GatheredNeeds& gathered) {
  open_ahead(store, record);
  for (const GroupRecord& group : record.groups) {
    gathered.add_node(group.root);
    VARVE_ASSIGN(Root root, read_root(store, group.root, group.hint));
    for (const LeafLink& link : root.leaves) {
      if (gathered.cancelled()) return Status::cancelled();
      gathered.add_node(link.score);
      VARVE_ASSIGN(Leaf leaf, read_leaf(store, link));
      gathered.add_leaf(leaf);
    }
  }
  return {};
}

Status unknown(const Status& status, const std::string& whose, Hint hint) {
  if (status.code() == StatusCode::cancelled) return status;
  return status.with_context("nothing can be removed, as it is unknown what " + whose + " needs")
      .with_hint(std::move(hint));
}

Status mark_parts(const Store& store, GatheredNeeds& gathered) {
  VARVE_ASSIGN(std::vector<PartName> names, list_parts(store));
  for (const PartName& name : names) {
    const Result<SetRecord> part = read_part(store, name);
    const Status marked = part.ok() ? mark_record(store, *part, gathered) : part.status();
    // One that is gone has become a set, which is seen as such; or was given up.
    if (!marked.ok() && read_part(store, name).status().code() != StatusCode::not_found) {
      return unknown(marked, name.to_string(),
                     "remove the file " + join_path(parts_path(store), name.file_name()) + " to give the part up");
    }
  }
  return {};
}

/// What a writer is about to commit: all of it is known if the lease holds a whole record. A record that is half
/// written is not needed yet (and looks as if it could not be understood, as long as it takes).
Status mark_leases(const Store& store, GatheredNeeds& gathered) {
  VARVE_ASSIGN(std::vector<DirectoryEntry> entries, store.backend().list(store.writers_path()));
  for (const DirectoryEntry& entry : entries) {
    const std::string path = join_path(store.writers_path(), entry.name);
    const Result<std::optional<SetRecord>> record = record_in_lease(store, entry.name);
    if (record.ok() && !*record) continue;
    const Status marked = record.ok() ? mark_record(store, **record, gathered) : record.status();
    // One that is gone has become a part or a set, which is seen as such; or was given up.
    if (marked.code() == StatusCode::cancelled) return marked;
    if (!marked.ok() && store.backend().status(path).status().code() != StatusCode::not_found) gathered.add_unknown();
  }
  return {};
}

/// What a set needs; false if it is not there. One that is dropped or replaced while its trees are read may have lost
/// some.
Result<bool> mark_set(const Store& store, const SetName& name, GatheredNeeds& gathered) {
  const Catalog catalog(store);
  Result<SetRecord> record = catalog.read(name);
  while (record.status().code() != StatusCode::not_found) {
    const Status marked = record.ok() ? mark_record(store, *record, gathered) : record.status();
    if (marked.ok()) return true;
    const Result<SetRecord> now = catalog.read(name);
    const bool other = now.status().code() == StatusCode::not_found ||
                       (record.ok() && now.ok() &&
                        encode_set_record(*now, store.score()) != encode_set_record(*record, store.score()));
    if (!other) {
      const bool may_not = marked.code() == StatusCode::permission_denied;
      return unknown(
          marked, "the set " + name.to_string(),
          may_not ? Hint("do it as a user who may read all of the store") : Hint(Remedy::drop_set, name.to_string()));
    }
    record = now;
  }
  return false;
}

/// The same of a record that somebody is removing, if it turns out to be the one: else it comes back.
Result<bool> mark_aside(const Store& store, const std::string& path, GatheredNeeds& gathered) {
  const Result<ByteVector> raw = store.backend().read_record(path, kSetRecordBytesMax);
  if (raw.status().code() == StatusCode::not_found) return false;
  const Result<SetRecord> record = raw.ok() ? decode_set_record(*raw, store.score()) : Result<SetRecord>(raw.status());
  const Status marked = record.ok() ? mark_record(store, *record, gathered) : record.status();
  if (marked.ok()) return true;
  if (store.backend().status(path).status().code() == StatusCode::not_found) return false;
  return unknown(marked, path, "run it again");
}

/// What pinned sets need that are not seen as sets: somebody drops one that is being pinned, or has dropped it. `done`:
/// those that were gone through.
Status mark_pins(const Store& store, GatheredNeeds& gathered, int lists, std::set<ByteVector>& done) {
  VARVE_ASSIGN(std::vector<Remarks::PinnedRecord> pins, Remarks(store).pinned_records(lists));
  const Catalog catalog(store);
  for (Remarks::PinnedRecord& pin : pins) {
    if (done.contains(pin.raw)) continue;
    const Result<SetRecord> record = decode_set_record(pin.raw, store.score());
    const Status marked = record.ok() ? mark_record(store, *record, gathered) : record.status();
    if (marked.ok()) {
      done.insert(std::move(pin.raw));
      continue;
    }
    // What is gone for good is that of a set which was dropped before it could be pinned, or was replaced since.
    const bool is_gone = marked.code() == StatusCode::corrupt || marked.code() == StatusCode::not_found;
    if (is_gone && !pin.sure) continue;
    const Result<SetRecord> now = catalog.read(pin.name);
    const bool is_replaced = is_gone && now.ok() && encode_set_record(*now, store.score()) != pin.raw;
    if (!is_replaced) return unknown(marked, "the pinned set " + pin.name.to_string(), "unpin it to give it up");
  }
  return {};
}

/// The sets, and the records that were put aside, of which it is known what they need.
struct MarkedSets {
  std::set<SetName> sets{};
  std::set<std::string> aside{};
  size_t size() const { return sets.size() + aside.size(); }
};

/// Who renames a job moves its sets to names that a list may have passed before it comes to the old ones, and finds
/// them gone, and so does who removes one that turns out to be another: so it lists again until there is nothing new.
Status mark_sets(const Store& store, GatheredNeeds& gathered, bool certain, MarkedSets& done) {
  const size_t at_once = store.backend().operations_at_once();
  uint64_t absent_lists = 0;
  for (uint64_t lists = 0;; ++lists) {
    VARVE_ASSIGN(Catalog::Listed listed, Catalog(store).list());
    std::erase_if(listed.sets, [&](const SetName& name) { return done.sets.contains(name); });
    std::erase_if(listed.aside, [&](const std::string& path) { return done.aside.contains(path); });
    const size_t sets = listed.sets.size(), all = sets + listed.aside.size();
    if (all == 0 && lists > 0) return {};
    std::vector<char> is_marked(all);
    VARVE_TRY(parallel_for(all, at_once, [&](size_t i) -> Status {
      VARVE_ASSIGN(const bool was_there, i < sets ? mark_set(store, listed.sets[i], gathered)
                                                  : mark_aside(store, listed.aside[i - sets], gathered));
      is_marked[i] = was_there ? 1 : 0;
      return {};
    }));
    if (!certain) return {};
    // What was not there may come back.
    const bool any = std::any_of(is_marked.begin(), is_marked.end(), [](char marked) { return marked != 0; });
    absent_lists = any || all == 0 ? 0 : absent_lists + 1;
    if (absent_lists > kAbsentListsMax)
      return Status::io_error("the catalog names a set that is not there",
                              sets > 0 ? listed.sets[0].to_string() : listed.aside[0], "remove its file");
    if (absent_lists > 0) sleep_for(kAbsentPause);
    for (size_t i = 0; i < sets; ++i) {
      if (is_marked[i] != 0) done.sets.insert(std::move(listed.sets[i]));
    }
    for (size_t i = sets; i < all; ++i) {
      if (is_marked[i] != 0) done.aside.insert(std::move(listed.aside[i - sets]));
    }
  }
}
}  // namespace

Result<std::optional<SetRecord>> record_in_lease(const Store& store, const std::string& lease_name) {
  VARVE_ASSIGN(const ByteVector raw,
               store.backend().read_record(join_path(store.writers_path(), lease_name), kSetRecordBytesMax));
  if (WriterLease::is_plain(as_text(raw))) return std::optional<SetRecord>();
  VARVE_ASSIGN(SetRecord record, decode_set_record(raw, store.score()));
  return std::optional(std::move(record));
}

Result<Needs> needs_of_sets(const Store& store, bool certain, const ProgressSink& progress) {
  GatheredNeeds gathered(progress);
  // A lease that holds a record, for which a prune has not waited, may become a part meanwhile; and parts a set, by way
  // of the lease of who completes it.
  if (certain) VARVE_TRY(mark_leases(store, gathered));
  VARVE_TRY(mark_parts(store, gathered));
  VARVE_TRY(mark_leases(store, gathered));
  // Before the sets, as who unpins one that was dropped makes it a set again first; and after them, as who pins one
  // looks whether it is a set when he has said so.
  std::set<ByteVector> pins_done;
  if (certain) VARVE_TRY(mark_pins(store, gathered, 1, pins_done));
  MarkedSets done;
  VARVE_TRY(mark_sets(store, gathered, certain, done));
  if (!certain) return gathered.take();
  VARVE_TRY(mark_pins(store, gathered, 2, pins_done));
  // Who commits a set anew rests on a set or a pin that is there (a rename, and who brings a pinned set back), and
  // looks for it once his lease says what he is about to commit. If somebody dropped it before it was come to here,
  // that lease is there by now, or the new set, or its pin.
  for (size_t known = done.size() + pins_done.size() + 1; known != done.size() + pins_done.size();) {
    known = done.size() + pins_done.size();
    VARVE_TRY(mark_leases(store, gathered));
    VARVE_TRY(mark_sets(store, gathered, certain, done));
    VARVE_TRY(mark_pins(store, gathered, 2, pins_done));
  }
  return gathered.take();
}

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
                        VARVE_ASSIGN(ByteVector content, read_node(store, score, hint));
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
