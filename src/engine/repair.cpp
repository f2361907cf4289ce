#include "engine/repair.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/sync.h"
#include "engine/pack_fetcher.h"
#include "store/condemn.h"
#include "store/needs.h"
#include "store/prune.h"
#include "store/spread_writer.h"
#include "store/stored_copies.h"

namespace varve {

namespace {
/// Mends one set: tree first, since only the tree says which packs there should be.
class SetMender {
 public:
  SetMender(const Store& store, const std::vector<RepairSource>& sources, const RepairOptions& options,
            ProgressSink& progress)
      : store_(store), sources_(sources), options_(options), progress_(progress), finder_(all_stores(store, sources)) {}

  Result<SetRepair> run(const SetName& name) {
    VARVE_ASSIGN(lease_, WriterLease::acquire(store_));
    writer_.emplace(store_, *lease_, 0, ArenaWriterOptions{.buffer_bytes = 1_MiB});
    const Status done = mend(name);
    if (!done.ok() && lease_->lost()) return WriterLease::lost_status(name);
    VARVE_TRY(done);
    SetRepair repair{{}, lost_};
    for (auto& [source, mended] : mended_) repair.mended.push_back(std::move(mended));
    return repair;
  }

 private:
  static std::vector<const Store*> all_stores(const Store& store, const std::vector<RepairSource>& sources) {
    std::vector<const Store*> stores = {&store};
    for (const RepairSource& source : sources) stores.push_back(source.store);
    return stores;
  }

  /// Fails if nothing more can be written, or the set is not known; what is lost for good is noted in lost_.
  Status mend(const SetName& name) {
    VARVE_ASSIGN(SetRecord record, find_record(name));
    // Who commits a record rests on nothing that a prune has marked before (COMMIT.md, W2).
    std::set<ArenaId> excluded;
    if (record_lost_) {
      VARVE_ASSIGN(excluded, lease_->condemned());
    }
    progress_.phase("looking at " + name.to_string());
    VARVE_ASSIGN(const SetNeeds needs,
                 needs_of_set(record, store_.score().score_bytes(), progress_,
                              [this](const Score& score, const ArenaId& hint) { return whole_node(score, hint); }));
    const size_t threads = options_.thread_count > 0 ? options_.thread_count : processor_count();
    VARVE_ASSIGN(const HeldFrames held, find_held(store_, excluded, needs, true, threads, progress_));
    progress_.phase("mending " + name.to_string());
    for (const auto& [score, need] : needs.packs) {
      if (progress_.cancelled()) return Status::cancelled();
      if (!held.packs.contains(score)) VARVE_TRY(mend_pack(score, need));
    }
    if (record_lost_ && lost_.ok()) VARVE_TRY(bring_nodes(needs, held));
    if (writer_->bytes() > 0) {
      VARVE_TRY(writer_->seal());
      VARVE_TRY(store_.backend().settle(store_.arenas_path()));
    }
    // A record promises that all it needs is there.
    if (!record_lost_ || !lost_.ok()) return {};
    VARVE_TRY(lease_->prepare(record));
    VARVE_ASSIGN(const std::optional<ByteVector> now, raw_record(name));
    Status committed = Status::already_exists("there is another one");
    if (now == damaged_record_)
      committed = now ? lease_->commit_rebuilt(name) : lease_->commit_prepared(name, IfExists::refuse);
    if (committed.code() == StatusCode::already_exists)
      return Status::busy("the set was made anew while it was mended, and stays as it is now", name.to_string());
    VARVE_TRY(committed);
    ++count(*record_lost_).records;
    return {};
  }

  /// What lies under the set's name, damaged or not; nothing if that is gone.
  Result<std::optional<ByteVector>> raw_record(const SetName& name) const {
    Result<ByteVector> raw = store_.backend().read_record(Catalog(store_).record_path(name), kSetRecordBytesMax);
    if (raw.status().code() == StatusCode::not_found) return std::optional<ByteVector>();
    VARVE_TRY(raw.status());
    return std::optional(std::move(*raw));
  }

  /// The set's record in the store; else in a source. A damaged one gives way only to the same: a job that went back
  /// may have made another set of that name here.
  Result<SetRecord> find_record(const SetName& name) {
    VARVE_ASSIGN(damaged_record_, raw_record(name));
    Result<SetRecord> own = Catalog(store_).read(name);
    const StatusCode code = own.status().code();
    if (own.ok() || (code != StatusCode::corrupt && code != StatusCode::not_found)) return own;
    Status refused = own.status();
    for (const RepairSource& source : sources_) {
      Result<SetRecord> other = Catalog(*source.store).read(name);
      if (!other.ok()) continue;
      if (damaged_record_ && !may_have_been(*damaged_record_, *other, store_.score())) {
        refused = Status::corrupt(std::string(own.status().message()), std::string(own.status().subject()),
                                  "nothing left of it says that the set of that name in " + source.name +
                                      " is the same: if that is what you want, drop the damaged one, and copy it");
        continue;
      }
      record_lost_ = source.name;
      return other;
    }
    return refused;
  }

  /// Of what nobody has.
  void note_lost(const Status& what) {
    if (lost_.ok()) lost_ = what;
  }

  /// A node, wherever it is; one that the store lacks is written to it. Nothing if nobody has it.
  Result<std::optional<ByteVector>> whole_node(const Score& score, const ArenaId& hint) {
    Result<ByteVector> own = read_node(store_, score, hint);
    if (own.ok()) return std::optional(std::move(*own));
    for (const RepairSource& source : sources_) {
      Result<ByteVector> other = read_node(*source.store, score, hint);
      if (!other.ok()) continue;
      if (!nodes_mended_.insert(score).second) return std::optional(std::move(*other));  // another group has it too
      const uint64_t before = writer_->bytes();
      VARVE_TRY(writer_->append_node(score, *other));
      ++count(source.name).nodes;
      count(source.name).bytes += writer_->bytes() - before;
      return std::optional(std::move(*other));
    }
    note_lost(own.status());
    return std::optional<ByteVector>();
  }

  /// Out of the arenas that were excluded.
  Status bring_nodes(const SetNeeds& needs, const HeldFrames& held) {
    for (const auto& [score, hint] : needs.nodes) {
      if (held.nodes.contains(score) || nodes_mended_.contains(score)) continue;
      VARVE_ASSIGN(const ByteVector content, read_node(store_, score, hint));
      VARVE_TRY(writer_->append_node(score, content));
      ++count(kOwnChunks).nodes;
    }
    return {};
  }

  Status mend_pack(const Score& score, const SetNeeds::PackNeed& need) {
    for (const RepairSource& source : sources_) {
      const Result<FetchedPack> fetched = PackFetcher(*source.store, true, {}).fetch(score, need, {});
      // Only what was checked chunk by chunk takes the place of something.
      if (fetched.ok() && fetched->checked) return append(*fetched, source.name);
    }
    // What is lacking may lie in several damaged copies, or in other packs.
    Result<FetchedPack> own = PackFetcher(store_, true, {}).fetch(score, need, {});
    if (own.ok() && own->checked) return append(*own, kOwnChunks);
    const Result<EncodedPack> built = finder_.build(score, need);
    if (!built.ok()) {
      note_lost(own.ok() ? built.status() : own.status());
      return {};
    }
    FetchedPack fetched;
    fetched.anew = *built;
    return append(fetched, kOwnChunks);
  }

  Status append(const FetchedPack& pack, std::string_view source) {
    const uint64_t before = writer_->bytes();
    if (pack.anew) {
      VARVE_TRY(writer_->append_pack(pack.anew->meta, pack.anew->body).status());
    } else {
      VARVE_TRY(writer_->append_copy(FrameKind::pack, pack.entry, pack.frame.meta, pack.frame.body));
    }
    MendedFrom& mended = count(source);
    ++mended.packs;
    mended.bytes += writer_->bytes() - before;
    return {};
  }

  MendedFrom& count(std::string_view source) {
    MendedFrom& mended = mended_[std::string(source)];
    mended.source = source;
    return mended;
  }

  const Store& store_;
  const std::vector<RepairSource>& sources_;
  const RepairOptions& options_;
  ProgressSink& progress_;
  ChunkFinder finder_;
  std::unique_ptr<WriterLease> lease_;
  std::optional<SpreadWriter> writer_;
  std::set<Score> nodes_mended_;
  std::map<std::string, MendedFrom> mended_;
  std::optional<std::string> record_lost_;    ///< the source that has the record then
  std::optional<ByteVector> damaged_record_;  ///< what lay under the set's name
  Status lost_;
};

void add(std::vector<MendedFrom>& all, const std::vector<MendedFrom>& more) {
  for (const MendedFrom& mended : more) {
    auto found =
        std::find_if(all.begin(), all.end(), [&](const MendedFrom& known) { return known.source == mended.source; });
    if (found == all.end()) {
      all.push_back(mended);
      continue;
    }
    found->packs += mended.packs;
    found->nodes += mended.nodes;
    found->records += mended.records;
    found->bytes += mended.bytes;
  }
}

/// The sets, by name, that some damage affects. Parts of sets cannot be mended: their writer is at work, or will never
/// complete them.
Result<std::vector<SetName>> affected_sets(const Store& store, const VerifyReport& report) {
  std::set<std::string> affected;
  for (const Damage& damage : report.damages) affected.insert(damage.affected_sets.begin(), damage.affected_sets.end());
  VARVE_ASSIGN(std::vector<SetName> sets, Catalog(store).sets());
  std::erase_if(sets, [&](const SetName& name) { return !affected.contains(name.to_string()); });
  return sets;
}

/// Brings all that is whole and needed out of damaged arenas, and removes them.
Result<uint64_t> remove_damaged_arenas(const Store& store, const VerifyReport& before, const RepairOptions& options,
                                       ProgressSink& progress) {
  std::set<ArenaId> damaged;
  for (const Damage& damage : before.damages) {
    if (damage.arena) damaged.insert(*damage.arena);
  }
  if (damaged.empty()) return uint64_t{0};
  VARVE_TRY(condemn_arenas(store, damaged));
  PruneOptions pruning;
  pruning.live_share_min = 0;  // for those arenas alone
  pruning.wait_seconds = options.wait_seconds;
  const Result<PruneReport> pruned = prune_store(store, pruning, progress);
  if (pruned.status().code() == StatusCode::cancelled) return pruned.status();
  if (!pruned.ok()) {
    // A set that is beyond repair: nothing may be removed then.
    progress.warning(pruned.status().with_context("damaged arenas stay where they are"));
    return uint64_t{0};
  }
  return pruned->removed_arenas;
}
}  // namespace

Result<SetRepair> repair_set(const Store& store, const SetName& name, const std::vector<RepairSource>& sources,
                             const RepairOptions& options, ProgressSink& progress) {
  return SetMender(store, sources, options, progress).run(name);
}

Result<RepairReport> repair_store(const Store& store, const std::vector<RepairSource>& sources,
                                  const RepairOptions& options, ProgressSink& progress) {
  RepairReport report;
  VARVE_ASSIGN(report.before, verify_store(store, true, progress));
  report.after = report.before;
  if (report.before.whole()) return report;
  VARVE_ASSIGN(const std::vector<SetName> affected, affected_sets(store, report.before));
  for (const SetName& name : affected) {
    const Status there = store.backend().status(Catalog(store).record_path(name)).status();
    if (there.code() == StatusCode::not_found) continue;  // dropped since it was found damaged
    const Result<SetRepair> repair = repair_set(store, name, sources, options, progress);
    if (repair.status().code() == StatusCode::cancelled) return repair.status();
    const Status left = repair.ok() ? repair->lost : repair.status();
    const bool mended_some = repair.ok() && !repair->mended.empty();
    if (mended_some) add(report.mended, repair->mended);
    if (left.ok()) {
      report.mended_sets.push_back(name);
      continue;
    }
    if (mended_some) report.partly_mended_sets.push_back(name);
    progress.warning(left.with_context(name.to_string() + " cannot be mended" + (mended_some ? " completely" : "")));
  }
  store.drop_arena_cache();
  VARVE_ASSIGN(report.removed_arenas, remove_damaged_arenas(store, report.before, options, progress));
  store.drop_arena_cache();
  VARVE_ASSIGN(report.after, verify_store(store, true, progress));
  return report;
}

}  // namespace varve
