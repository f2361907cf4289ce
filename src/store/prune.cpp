#include "store/prune.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "arena/arena_writer.h"
#include "store/pack_ranges.h"
#include "store/writer_lease.h"

namespace varve {

namespace {
/// The last line of a mark that is complete.
constexpr std::string_view kMarkEnd = "end\n";

/// What the sets of a store need.
struct Needs {
  /// For each pack, the ranges of its raw bytes that are referred to; sorted and apart.
  std::unordered_map<Score, std::vector<Extent>, ScoreHash> packs;
  std::unordered_set<Score, ScoreHash> nodes;
};

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

Result<Needs> mark_sets(const Store& store) {
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

/// The pack without its dead chunks: a shorter body, the same table, so the same score. Nothing if that saves too
/// little.
Result<std::optional<std::pair<PackMeta, ByteVector>>> thin_pack(const ArenaReader& arena, size_t ordinal,
                                                                 const std::vector<Extent>& ranges, size_t body_bytes) {
  VARVE_ASSIGN(Pack pack, arena.read_pack(ordinal));
  PackMeta meta = pack.meta();
  const std::vector<bool> live = chunks_in_ranges(meta, ranges);
  ByteVector raw;
  meta.held_runs.clear();
  uint64_t offset = 0;
  for (size_t i = 0; i < meta.chunks.size(); ++i) {
    // Runs alternate, beginning with held chunks: an even number of them means that the next run is of held ones.
    const bool last_run_held = meta.held_runs.size() % 2 == 1;
    if (meta.held_runs.empty() || last_run_held != live[i]) {
      if (meta.held_runs.empty() && !live[i]) meta.held_runs.push_back(0);
      meta.held_runs.push_back(0);
    }
    ++meta.held_runs.back();
    if (live[i]) {
      VARVE_ASSIGN(ByteSpan bytes, pack.range(offset, meta.chunks[i].bytes));
      raw.insert(raw.end(), bytes.begin(), bytes.end());
    }
    offset += meta.chunks[i].bytes;
  }
  VARVE_ASSIGN(std::string chain_name, recipe_name(meta.recipe));
  ElementType type;
  if (size_t mark = meta.class_key.rfind("_Array"); mark != std::string::npos) {
    const size_t begin = meta.class_key.rfind('_', mark - 1) + 1;
    if (Result<ElementType> named = ElementType::parse(meta.class_key.substr(begin, mark - begin));
        named.ok() && raw.size() % named->bytes == 0) {
      type = *named;
    }
  }
  const PackShape shape{type, {Run{raw.size() / type.bytes, {}, false}}};
  VARVE_ASSIGN(CodecChain chain, CodecChain::parse(chain_name));
  VARVE_ASSIGN(EncodedBytes encoded, encode_chain(chain, raw, shape));
  if (encoded.body.size() + encoded.body.size() / 8 >= body_bytes)
    return std::optional<std::pair<PackMeta, ByteVector>>();
  meta.recipe = std::move(encoded.recipe);
  return std::optional(std::pair(std::move(meta), std::move(encoded.body)));
}

class Pruner {
 public:
  Pruner(const Store& store, const PruneOptions& options, ProgressSink& progress)
      : store_(store), fs_(store.fs()), options_(options), progress_(progress) {}

  Result<PruneReport> run() {
    VARVE_TRY(drop_sets());
    if (options_.dry_run) return report_;
    progress_.phase("pruning");
    VARVE_TRY(remove_dead_leases());
    VARVE_ASSIGN(std::set<ArenaId> victims, mark_victims());
    VARVE_TRY(wait_for_writers());
    // Whoever could refer to the victims has committed or never will: what is needed of them is now certain.
    VARVE_ASSIGN(Needs needs, mark_sets(store_));
    VARVE_TRY(remove_victims(victims, needs));
    VARVE_TRY(remove_leftovers());
    VARVE_ASSIGN(report_.bytes_after, bytes_of_arenas());
    return report_;
  }

 private:
  Status drop_sets() {
    if (!options_.keep_last && !options_.keep_every) return {};
    const Catalog catalog(store_);
    VARVE_ASSIGN(std::vector<std::string> jobs, catalog.jobs());
    for (const std::string& job : jobs) {
      if (!options_.job.empty() && job != options_.job) continue;
      VARVE_ASSIGN(std::vector<uint64_t> steps, catalog.steps(job));
      for (size_t i = 0; i < steps.size(); ++i) {
        const bool recent = options_.keep_last && steps.size() - i <= *options_.keep_last;
        const bool regular = options_.keep_every && *options_.keep_every > 0 && steps[i] % *options_.keep_every == 0;
        if (recent || regular) continue;
        report_.dropped.push_back({job, steps[i]});
        if (options_.dry_run) continue;
        // Somebody else may have dropped it just now.
        if (Status removed = catalog.remove({job, steps[i]}); removed.code() != StatusCode::not_found)
          VARVE_TRY(removed);
      }
    }
    return {};
  }

  Result<uint64_t> bytes_of_arenas() const {
    VARVE_ASSIGN(std::vector<ArenaId> arenas, store_.list_arenas());
    uint64_t bytes = 0;
    for (const ArenaId& id : arenas) {
      if (Result<FileStatus> status = fs_.stat(store_.arena_path(id)); status.ok()) bytes += status->bytes;
    }
    return bytes;
  }

  Result<std::map<std::string, int64_t>> leases() const {
    VARVE_ASSIGN(std::vector<DirectoryEntry> entries, fs_.list(store_.writers_path()));
    std::map<std::string, int64_t> beats;
    for (const DirectoryEntry& entry : entries) {
      Result<FileStatus> status = fs_.stat(join_path(store_.writers_path(), entry.name));
      if (status.ok()) {
        beats[entry.name] = status->modified_ns;
      } else if (status.status().code() != StatusCode::not_found) {
        return status.status();  // only a lease that is gone is the lease of a writer that has finished
      }
    }
    return beats;
  }

  /// Of processes that are known to be gone, so that what they wrote and never committed can go with this prune.
  Status remove_dead_leases() {
    VARVE_ASSIGN(auto writers, leases());
    for (const auto& [name, beat] : writers) {
      if (!WriterLease::known_dead(store_, name)) continue;
      VARVE_TRY(remove_if_there(join_path(store_.writers_path(), name)));
      ++report_.leftover_files;
    }
    return {};
  }

  /// Stored bytes of an arena that are still needed.
  Result<uint64_t> live_bytes(const ArenaReader& arena, const Needs& needs) const {
    uint64_t live = 0;
    for (size_t i = 0; i < arena.index().packs.size(); ++i) {
      const FrameEntry& entry = arena.index().packs[i];
      auto needed = needs.packs.find(entry.score);
      if (needed == needs.packs.end()) continue;
      uint64_t needed_bytes = 0;
      for (const Extent& range : needed->second) needed_bytes += range.bytes;
      const double share = std::min(
          1.0, static_cast<double>(needed_bytes) / static_cast<double>(std::max<uint64_t>(entry.raw_bytes, 1)));
      live += static_cast<uint64_t>(share * static_cast<double>(entry.body_bytes)) + entry.meta_bytes;
    }
    for (const FrameEntry& entry : arena.index().nodes) {
      if (needs.nodes.contains(entry.score)) live += entry.body_bytes;
    }
    return live;
  }

  /// Marks the arenas that are to go. Once marked, an arena stays so until it is removed: no new reference is made into
  /// it, and no prune counts on it.
  ///
  /// A mark holds the names of the leases that were there when it was durable: those writers, and no later ones, may
  /// not have seen it. One that says nothing yet (its prune was killed) is given the leases of now.
  Result<std::set<ArenaId>> mark_victims() {
    // In this order: the writer of an arena that is listed here but has no lease below has finished, and its set is
    // seen by mark_sets().
    VARVE_ASSIGN(std::vector<ArenaId> arenas, store_.list_arenas());
    VARVE_ASSIGN(auto writers, leases());
    VARVE_ASSIGN(Needs needs, mark_sets(store_));
    VARVE_ASSIGN(report_.bytes_before, bytes_of_arenas());
    VARVE_ASSIGN(std::vector<ArenaId> condemned, store_.list_condemned());
    std::set<ArenaId> victims(condemned.begin(), condemned.end());
    std::map<ArenaId, std::unique_ptr<File>> marks;
    for (const ArenaId& id : arenas) {
      if (victims.contains(id)) continue;
      if (std::any_of(writers.begin(), writers.end(),
                      [&](const auto& lease) { return WriterLease::owns(lease.first, id); }))
        continue;
      Result<std::shared_ptr<ArenaReader>> arena = store_.arena(id);
      if (!arena.ok()) {
        progress_.warning(arena.status().with_context("left alone"));
        continue;
      }
      VARVE_ASSIGN(uint64_t live, live_bytes(**arena, needs));
      // A small arena is mostly its own tables; rewriting it again and again would gain nothing.
      const bool worth_it =
          live == 0 || static_cast<double>(live) < options_.live_share_min * static_cast<double>((*arena)->bytes());
      if (!worth_it) continue;
      Result<std::unique_ptr<File>> mark = fs_.create(join_path(store_.condemned_path(), id.hex()));
      if (!mark.ok() && mark.status().code() != StatusCode::already_exists) return mark.status();
      victims.insert(id);
      if (mark.ok()) marks[id] = std::move(*mark);
    }
    VARVE_TRY(fs_.sync_directory(store_.condemned_path()));
    VARVE_ASSIGN(auto unaware, leases());
    std::string text;
    for (const auto& [name, beat] : unaware) text += name + "\n";
    text += kMarkEnd;
    for (const ArenaId& id : victims) {
      auto mark = marks.find(id);
      if (mark != marks.end()) VARVE_TRY(mark->second->write_at(0, as_bytes(text)));
      VARVE_TRY(note_unaware(id, unaware));
    }
    return victims;
  }

  /// Adds the writers that an arena's mark names to those to be waited for; all of `now` if it does not say.
  Status note_unaware(const ArenaId& id, const std::map<std::string, int64_t>& now) {
    Result<ByteVector> raw = read_file(fs_, join_path(store_.condemned_path(), id.hex()), 16_MiB);
    if (!raw.ok() && raw.status().code() == StatusCode::not_found)
      return {};  // another prune has removed arena and mark
    const std::string text(raw.ok() ? as_text(*raw) : std::string_view());
    const bool says = text.ends_with(kMarkEnd);
    for (const auto& [name, beat] : now) {
      if (!says || text.find(name + "\n") != std::string::npos) waiting_[name] = beat;
    }
    return {};
  }

  /// Waits for the writers that may not have seen the marks. One that shows no sign of life for wait_seconds is given
  /// up: its lease is removed, so that it cannot commit. Those still alive are left to the next prune.
  Status wait_for_writers() {
    using Clock = std::chrono::steady_clock;
    std::map<std::string, int64_t>& waiting = waiting_;
    const auto begin = Clock::now();
    while (!waiting.empty()) {
      if (progress_.cancelled()) return Status::cancelled();
      VARVE_ASSIGN(auto now, leases());
      const bool over = std::chrono::duration<double>(Clock::now() - begin).count() >= options_.wait_seconds;
      for (auto it = waiting.begin(); it != waiting.end();) {
        auto current = now.find(it->first);
        if (current == now.end()) {
          it = waiting.erase(it);
        } else if ((over && current->second == it->second) || WriterLease::known_dead(store_, it->first)) {
          VARVE_TRY(remove_if_there(join_path(store_.writers_path(), it->first)));
          ++report_.leftover_files;
          it = waiting.erase(it);
        } else {
          ++it;
        }
      }
      if (over) break;
      if (!waiting.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    writers_remain_ = !waiting.empty();
    return {};
  }

  Status remove_if_there(const std::string& path) const {
    Status removed = fs_.remove(path);
    return removed.code() == StatusCode::not_found ? Status() : removed;
  }

  Status remove_victims(const std::set<ArenaId>& victims, const Needs& needs) {
    if (writers_remain_) {
      report_.waiting_arenas = victims.size();
      return {};
    }
    VARVE_TRY(sync_catalog());
    // Copies in any marked arena do not count, whoever marked it: marks were set before they are read here.
    VARVE_ASSIGN(std::vector<ArenaId> condemned_list, store_.list_condemned());
    VARVE_ASSIGN(std::vector<ArenaId> arenas, store_.list_arenas());
    // What is counted on below must be as durable as the removal of what it stands in for.
    VARVE_TRY(fs_.sync_directory(store_.arenas_path()));
    const std::set<ArenaId> condemned(condemned_list.begin(), condemned_list.end());
    std::unordered_set<Score, ScoreHash> safe_packs, safe_nodes;
    for (const ArenaId& id : arenas) {
      if (condemned.contains(id)) continue;
      Result<std::shared_ptr<ArenaReader>> arena = store_.arena(id);
      if (!arena.ok()) continue;
      for (size_t i = 0; i < (*arena)->index().packs.size(); ++i) {
        const Score& score = (*arena)->index().packs[i].score;
        auto needed = needs.packs.find(score);
        if (needed != needs.packs.end() && holds_ranges(**arena, i, needed->second)) safe_packs.insert(score);
      }
      for (const FrameEntry& entry : (*arena)->index().nodes) safe_nodes.insert(entry.score);
    }
    VARVE_ASSIGN(std::set<ArenaId> kept, copy_live_frames(victims, needs, safe_packs, safe_nodes));
    store_.drop_arena_cache();
    for (const ArenaId& id : victims) {
      if (kept.contains(id)) continue;
      VARVE_TRY(remove_if_there(store_.arena_path(id)));
      ++report_.removed_arenas;
    }
    // The marks go after the arenas: an arena without its mark must not come back.
    VARVE_TRY(fs_.sync_directory(store_.arenas_path()));
    for (const ArenaId& id : victims) {
      if (!kept.contains(id)) VARVE_TRY(remove_if_there(join_path(store_.condemned_path(), id.hex())));
    }
    return fs_.sync_directory(store_.condemned_path());
  }

  /// A set that somebody dropped must not come back after a power cut when its arenas are gone.
  Status sync_catalog() const {
    VARVE_ASSIGN(std::vector<std::string> jobs, Catalog(store_).jobs());
    for (const std::string& job : jobs) {
      Status synced = fs_.sync_directory(Catalog(store_).job_path(job));
      if (synced.code() != StatusCode::not_found) VARVE_TRY(synced);
    }
    return fs_.sync_directory(store_.sets_path());
  }

  /// Copies what is needed of the victims and has no other home into a new sealed arena; returns the victims that could
  /// not be read in full and must stay.
  Result<std::set<ArenaId>> copy_live_frames(const std::set<ArenaId>& victims, const Needs& needs,
                                             std::unordered_set<Score, ScoreHash>& safe_packs,
                                             std::unordered_set<Score, ScoreHash>& safe_nodes) {
    std::set<ArenaId> kept;
    std::map<Score, std::vector<ArenaId>> partial;
    VARVE_ASSIGN(std::unique_ptr<WriterLease> lease, WriterLease::acquire(store_));
    const ArenaId new_id = lease->arena_id(0);
    std::unique_ptr<ArenaWriter> writer;
    auto open_writer = [&]() -> Status {
      if (writer != nullptr) return {};
      VARVE_ASSIGN(writer, ArenaWriter::create(fs_, store_.part_path(new_id), store_.arena_header(new_id),
                                               {.background = false, .buffer_bytes = 1_MiB}));
      return {};
    };
    for (const ArenaId& id : victims) {
      Result<std::shared_ptr<ArenaReader>> arena = store_.arena(id);
      if (!arena.ok()) {
        if (arena.status().code() == StatusCode::not_found) continue;  // another prune removed it
        progress_.warning(arena.status().with_context("left alone"));
        kept.insert(id);
        continue;
      }
      for (size_t i = 0; i < (*arena)->index().packs.size(); ++i) {
        const FrameEntry& entry = (*arena)->index().packs[i];
        auto needed = needs.packs.find(entry.score);
        if (needed == needs.packs.end() || safe_packs.contains(entry.score)) continue;
        if (!holds_ranges(**arena, i, needed->second)) {  // another copy does, or it must stay
          partial[entry.score].push_back(id);
          continue;
        }
        VARVE_TRY(open_writer());
        Status copied = copy_pack(**arena, i, needed->second, *writer);
        if (copied.code() == StatusCode::corrupt) {
          progress_.warning(copied.with_context("a damaged arena is left alone"));
          kept.insert(id);
          continue;
        }
        VARVE_TRY(copied);
        safe_packs.insert(entry.score);
        ++report_.rewritten_packs;
      }
      for (size_t i = 0; i < (*arena)->index().nodes.size(); ++i) {
        const FrameEntry& entry = (*arena)->index().nodes[i];
        if (!needs.nodes.contains(entry.score) || safe_nodes.contains(entry.score)) continue;
        VARVE_TRY(open_writer());
        Result<ByteVector> content = (*arena)->read_node(i);
        if (!content.ok()) {
          progress_.warning(content.status().with_context("a damaged arena is left alone"));
          kept.insert(id);
          continue;
        }
        VARVE_TRY(writer->append_node(entry.score, *content).status());
        safe_nodes.insert(entry.score);
      }
    }
    for (const auto& [score, arenas] : partial) {
      if (!safe_packs.contains(score)) kept.insert(arenas.begin(), arenas.end());
    }
    if (writer == nullptr) return kept;
    VARVE_TRY(writer->seal(store_.arena_path(new_id)));
    VARVE_TRY(fs_.sync_directory(store_.arenas_path()));  // durable before what it replaces goes
    return kept;
  }

  Status copy_pack(const ArenaReader& arena, size_t ordinal, const std::vector<Extent>& ranges, ArenaWriter& writer) {
    const FrameEntry& entry = arena.index().packs[ordinal];
    uint64_t needed_bytes = 0;
    for (const Extent& range : ranges) needed_bytes += range.bytes;
    if (needed_bytes < entry.raw_bytes) {
      auto thinned = thin_pack(arena, ordinal, ranges, entry.body_bytes);
      if (thinned.ok() && *thinned) return writer.append_pack((*thinned)->first, (*thinned)->second).status();
      // With a codec that this build lacks the pack is copied whole.
      if (!thinned.ok() && thinned.status().code() != StatusCode::unsupported) return thinned.status();
    }
    VARVE_ASSIGN(ArenaReader::RawFrame frame, arena.read_raw(FrameKind::pack, ordinal));
    return writer.append_copy(FrameKind::pack, entry, frame.meta, frame.body);
  }

  /// Unfinished files of writers that are gone.
  Status remove_leftovers() {
    VARVE_ASSIGN(std::vector<DirectoryEntry> entries, fs_.list(store_.arenas_path()));
    VARVE_ASSIGN(auto writers, leases());  // after the list: a writer's lease is there before its files
    for (const DirectoryEntry& entry : entries) {
      if (!entry.name.ends_with(".part")) continue;
      Result<ArenaId> id = ArenaId::parse(std::string_view(entry.name).substr(0, entry.name.size() - 5));
      const bool alive = id.ok() && std::any_of(writers.begin(), writers.end(),
                                                [&](const auto& lease) { return WriterLease::owns(lease.first, *id); });
      if (alive) continue;
      VARVE_TRY(remove_if_there(join_path(store_.arenas_path(), entry.name)));
      ++report_.leftover_files;
    }
    if (!writers.empty()) return {};
    VARVE_ASSIGN(std::vector<DirectoryEntry> runs, fs_.list(store_.index_path()));
    for (const DirectoryEntry& entry : runs) {
      if (entry.name.ends_with(".part")) VARVE_TRY(remove_if_there(join_path(store_.index_path(), entry.name)));
    }
    return {};
  }

  const Store& store_;
  FileSystem& fs_;
  const PruneOptions& options_;
  ProgressSink& progress_;
  PruneReport report_;
  std::map<std::string, int64_t>
      waiting_;  ///< leases of writers that may not have seen a mark, and their last sign of life
  bool writers_remain_ = false;
};
}  // namespace

Result<PruneReport> prune_store(const Store& store, const PruneOptions& options, ProgressSink& progress) {
  return Pruner(store, options, progress).run();
}

}  // namespace varve
