#include "engine/inspect.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <map>
#include <set>

#include "engine/stored_files.h"
#include "format/tree.h"
#include "store/catalog.h"
#include "store/needs.h"
#include "store/stored_copies.h"

namespace varve {

uint64_t pattern_at(const Reference& reference, uint64_t skip) {
  return std::rotr(reference.offset, static_cast<int>(8 * (skip % 8)));
}

Reference part_of(const Reference& reference, uint64_t skip, uint64_t bytes) {
  const bool pattern = reference.pack == Reference::kPattern;
  return {reference.pack, pattern ? pattern_at(reference, skip) : reference.offset + skip, bytes};
}

FileReferences::FileReferences(const TreeFile& file) {
  for (size_t stream = 0; stream < file.streams.size(); ++stream) {
    auto reference = file.streams[stream].begin();
    uint64_t skip = 0;
    for (const Extent& extent : stream_extents(file, stream)) {
      for (uint64_t done = 0; done < extent.bytes;) {
        const uint64_t part = std::min(extent.bytes - done, reference->bytes - skip);
        slices_.push_back({extent.offset + done, part_of(*reference, skip, part)});
        done += part;
        skip += part;
        if (skip < reference->bytes) continue;
        ++reference;
        skip = 0;
      }
    }
  }
  std::sort(slices_.begin(), slices_.end(),
            [](const Slice& a, const Slice& b) { return a.file_offset < b.file_offset; });
}

std::vector<Reference> FileReferences::all() const {
  std::vector<Reference> references;
  references.reserve(slices_.size());
  for (const Slice& slice : slices_) references.push_back(slice.reference);
  return references;
}

std::vector<Reference> FileReferences::of(const std::vector<Extent>& extents) const {
  std::vector<Reference> references;
  for (const Extent& extent : extents) {
    const uint64_t end = extent.offset + extent.bytes;
    auto slice = std::prev(std::upper_bound(slices_.begin(), slices_.end(), extent.offset,
                                            [](uint64_t at, const Slice& one) { return at < one.file_offset; }));
    for (uint64_t at = extent.offset; at < end; ++slice) {
      const uint64_t skip = at - slice->file_offset;
      const uint64_t part = std::min(end - at, slice->reference.bytes - skip);
      references.push_back(part_of(slice->reference, skip, part));
      at += part;
    }
  }
  return references;
}

void unfold_small_variables(TreeFile& file) {
  if (file.small_variables.empty()) return;
  const FileReferences references(file);
  for (Variable& variable : file.small_variables) {
    file.streams.push_back(references.of(variable.extents));
    file.layout.variables.push_back(std::move(variable));
  }
  file.small_variables.clear();
  file.streams.front() = references.of(stream_extents(file, 0));
}

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

namespace {
FileDetails describe(const Leaf& leaf, const TreeFile& file) {
  FileDetails described;
  described.path = file.path;
  described.type = file.type;
  described.rank = file.rank;
  described.bytes = file.bytes;
  described.modified_s = file.modified_s;
  described.format = file.layout.format;
  described.skeleton_bytes = file.bytes;
  described.unnamed_variable_count = file.unnamed_variable_count;
  const auto add = [&described](const Variable& variable, const std::string& class_key) {
    described.variables.push_back(
        {variable.name, variable.type, variable.shape, class_key, variable.stored_bytes(), variable.encoded});
    described.skeleton_bytes -= variable.stored_bytes();
  };
  for (size_t i = 0; i < file.layout.variables.size(); ++i)
    add(file.layout.variables[i], leaf.class_keys[file.class_of[i]]);
  for (const Variable& variable : file.small_variables) add(variable, skeleton_class(file.layout.format));
  return described;
}

/// Adds up what a set refers to.
class ReferenceCounter {
 public:
  explicit ReferenceCounter(SetDetails& details) : details_(details) {
    for (const GroupRecord& group : details.record.groups) written_.insert(group.hint);
  }

  void count(const Leaf& leaf, const TreeFile& file) {
    for (const std::vector<Reference>& stream : file.streams) {
      for (const Reference& reference : stream) {
        const bool pattern = reference.pack == Reference::kPattern;
        (pattern ? details_.pattern_bytes : details_.own_bytes) += reference.bytes;
        if (pattern || written_.contains(leaf.packs[reference.pack].hint)) continue;
        found_there_[leaf.packs[reference.pack].score].push_back({reference.offset, reference.bytes});
      }
    }
  }

  /// What was not written for the set itself: in arenas of others.
  const PackUses& found_there() const { return found_there_; }

 private:
  SetDetails& details_;
  std::set<ArenaId> written_;
  PackUses found_there_;
};
}  // namespace

Result<SetDetails> inspect_set(const Store& store, const SetName& name, const FileFilter& filter,
                               ProgressSink& progress) {
  const Catalog catalog(store);
  SetDetails details;
  VARVE_ASSIGN(details.record, catalog.read(name));
  ReferenceCounter references(details);
  VARVE_TRY(for_each_leaf(store, details.record, [&](const Leaf& leaf) -> Status {
    for (const TreeFile& file : leaf.files) {
      if (!filter.matches(file)) continue;
      details.files.push_back(describe(leaf, file));
      references.count(leaf, file);
    }
    return {};
  }));
  VARVE_ASSIGN(Sharing sharing, find_sharing(store, details.record, references.found_there(), progress));
  details.own_bytes -= sharing.bytes;
  details.shared_bytes = sharing.bytes;
  details.shared_with = std::move(sharing.with);
  return details;
}

namespace {
/// corrupt if an arena lacks; `known` are packs that are there.
Status check_set_is_there(const Store& store, const SetRecord& record, std::set<Score>& known) {
  return for_each_leaf(store, record, [&](const Leaf& leaf) -> Status {
    for (const PackLink& link : leaf.packs) {
      if (!known.insert(link.score).second) continue;
      if (Status there = check_pack_is_there(store, link); !there.ok()) {
        known.erase(link.score);
        return there;
      }
    }
    return {};
  });
}

Status note_damage(const Store& store, const SetRecord& record, std::set<Score>& known, StoreStatistics& statistics) {
  const Status there = check_set_is_there(store, record, known);
  const bool is_lacking = there.code() == StatusCode::corrupt || there.code() == StatusCode::not_found;
  if (!is_lacking) return there;
  if (Catalog(store).unless_dropped(record.name, there).code() == StatusCode::not_found) return {};
  if (statistics.damaged_sets.empty()) statistics.first_damage = there;
  statistics.damaged_sets.push_back(record.name);
  return {};
}
}  // namespace

Result<StoreStatistics> store_statistics(const Store& store) {
  const Catalog catalog(store);
  StoreStatistics statistics;
  std::set<Score> known_packs;
  VARVE_ASSIGN(std::vector<SetName> sets, catalog.sets());
  for (const SetName& name : sets) {
    const Result<SetRecord> record = catalog.read(name);
    const Result<FileStatus> status = store.backend().status(catalog.record_path(name));
    const auto is_gone = [](const Status& what) { return what.code() == StatusCode::not_found; };
    if (is_gone(record.status()) || is_gone(status.status())) continue;  // it was dropped just now
    VARVE_TRY(record.status());
    VARVE_TRY(status.status());
    ++statistics.set_count;
    statistics.raw_bytes += record->raw_bytes;
    statistics.metadata_bytes += status->bytes;
    VARVE_TRY(note_damage(store, *record, known_packs, statistics));
  }
  VARVE_ASSIGN(std::vector<ArenaId> arenas, store.list_arenas());
  for (const ArenaId& id : arenas) {
    const Result<std::shared_ptr<ArenaReader>> opened = store.arena(id);
    if (opened.status().code() == StatusCode::not_found) continue;  // a prune has removed it just now
    VARVE_TRY(opened.status());
    const ArenaReader* const arena = opened->get();
    ++statistics.arena_count;
    uint64_t body_bytes = 0;
    for (size_t i = 0; i < arena->index().packs.size(); ++i) {
      const Result<PackMeta> read = arena->read_pack_meta(i);
      if (read.status().code() == StatusCode::not_found) break;  // likewise
      VARVE_TRY(read.status());
      const PackMeta& meta = *read;
      VARVE_ASSIGN(std::string chain, recipe_name(meta.recipe));
      const uint64_t stored = arena->index().packs[i].body_bytes, raw = meta.held_bytes();
      for (ShareStatistics* share : {&statistics.classes[meta.class_key], &statistics.chains[chain]}) {
        ++share->pack_count;
        share->raw_bytes += raw;
        share->stored_bytes += stored;
      }
      statistics.distinct_bytes += raw;
      body_bytes += stored;
    }
    statistics.packed_bytes += body_bytes;
    statistics.metadata_bytes += arena->bytes() - body_bytes;
  }
  for (uint32_t place = 0; place < store.spread().places(); ++place) {
    const std::string folder = store.index_path(place);
    VARVE_ASSIGN(const auto runs, store.backend().list_with_status(folder));
    for (const auto& [name, status] : runs) statistics.index_bytes += status.ok() ? status->bytes : 0;
  }
  return statistics;
}

namespace {
constexpr uint64_t kReadBytes = 1_MiB;

Status give_stream(const Store& store, const Leaf& leaf, const std::vector<Reference>& stream,
                   const std::function<Status(ByteSpan)>& take) {
  StreamReader reader(store);
  uint64_t total = 0;
  for (const Reference& reference : stream) total += reference.bytes;
  ByteVector buffer(std::min(total, kReadBytes));
  for (uint64_t at = 0; at < total; at += buffer.size()) {
    MutableByteSpan part(buffer.data(), std::min<uint64_t>(buffer.size(), total - at));
    VARVE_TRY(reader.read(leaf, stream, at, part));
    VARVE_TRY(take(part));
  }
  return {};
}
}  // namespace

Status read_leaf_file(const Store& store, const Leaf& leaf, const TreeFile& file,
                      const std::function<Status(ByteSpan)>& take) {
  StreamReader reader(store, 64);
  ByteVector buffer;
  for (const FilePiece& piece : file_pieces(file)) {
    for (uint64_t done = 0; done < piece.bytes;) {
      buffer.resize(std::min<uint64_t>(piece.bytes - done, kReadBytes));
      VARVE_TRY(reader.read(leaf, file.streams[piece.stream], piece.stream_offset + done, buffer));
      VARVE_TRY(take(buffer));
      done += buffer.size();
    }
  }
  return {};
}

Status read_set_file(const Store& store, const SetName& name, const std::string& path, const std::string& variable,
                     const std::function<Status(ByteSpan)>& take, ProgressSink& progress) {
  progress.phase("reading");
  auto take_counted = [&](ByteSpan bytes) -> Status {
    if (progress.cancelled()) return Status::cancelled();
    VARVE_TRY(take(bytes));
    progress.advance(bytes.size());
    return {};
  };
  VARVE_ASSIGN(SetRecord record, Catalog(store).read(name));
  bool found = false;
  Status lost_first;  // it may have listed the file
  Status given = for_each_leaf(
      store, record,
      [&](const Leaf& leaf) -> Status {
        for (const TreeFile& file : leaf.files) {
          if (found || file.path != path) continue;
          found = true;
          if (file.type != FileType::regular)
            return Status::invalid_argument("not a regular file", name.to_string() + ":" + path);
          if (variable.empty()) {
            progress.total(file.bytes);
            return read_leaf_file(store, leaf, file, take_counted);
          }
          for (size_t i = 0; i < file.layout.variables.size(); ++i) {
            if (file.layout.variables[i].name != variable) continue;
            progress.total(file.layout.variables[i].stored_bytes());
            return give_stream(store, leaf, file.streams[i + 1], take_counted);
          }
          for (const Variable& small : file.small_variables) {
            if (small.name != variable) continue;
            progress.total(small.stored_bytes());
            return give_stream(store, leaf, FileReferences(file).of(small.extents), take_counted);
          }
          return Status::not_found("the file has no such variable", std::string(path).append(":").append(variable),
                                   {Remedy::list_variables, name.to_string()});
        }
        return {};
      },
      [&](const LostLeaves& lost) -> Status {
        if (lost_first.ok()) lost_first = lost.why;
        return {};
      });
  VARVE_TRY(given);
  if (!found) {
    VARVE_TRY(lost_first);
    return Status::not_found("the set has no such file", name.to_string() + ":" + path,
                             {Remedy::list_files, name.to_string()});
  }
  return {};
}

}  // namespace varve
