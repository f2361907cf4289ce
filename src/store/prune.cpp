#include "store/prune.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "core/sync.h"
#include "core/thread_pool.h"
#include "store/commit.h"
#include "store/evacuation.h"
#include "store/needs.h"
#include "store/remarks.h"
#include "store/sets_to_drop.h"

namespace varve {

namespace {
/// Few small arenas do no harm, and merging them would write their bytes again and again.
constexpr size_t kMergedArenasMin = 8;

/// Of a pack's frame, what is needed.
double needed_bytes_of_pack(const FrameEntry& entry, const std::vector<Extent>& ranges) {
  uint64_t needed = 0;
  for (const Extent& range : ranges) needed += range.bytes;
  // Of what the body holds: a pack that was thinned to what is needed is all alive.
  const uint64_t held = entry.raw_bytes - std::min(entry.missing_bytes, entry.raw_bytes);
  const double share = static_cast<double>(needed) / static_cast<double>(std::max<uint64_t>(held, 1));
  const auto tables = static_cast<double>(kFrameHeaderBytes + entry.meta_bytes);
  return tables + std::min(1.0, share) * static_cast<double>(entry.body_bytes);
}

/// An arena, and what is needed of it.
struct ArenaUse {
  ArenaId id;
  bool whole_index = true;  ///< else it may hold more than it tells
  double bytes = 0;         ///< of all its packs and nodes
  double needed = 0;        ///< of those that anybody needs
  double unique = 0;        ///< of those that no other candidate could give
  double counted = 0;       ///< of those that are counted here
  bool leaves = false;
};

/// A copy of something that is needed.
struct Copy {
  const Score* score = nullptr;  ///< in Needs
  uint32_t arena = 0;
  double bytes = 0;
  bool complete = true;  ///< it has all that is needed of the pack
};

class HomePlan {
 public:
  HomePlan(const Needs& needs, const VictimRules& rules) : needs_(needs), rules_(rules) {}

  void add(const ArenaReader& arena) {
    const auto number = static_cast<uint32_t>(uses_.size());
    ArenaUse use{arena.id(), arena.index_status().ok()};
    for (size_t i = 0; i < arena.index().packs.size(); ++i) {
      const FrameEntry& entry = arena.index().packs[i];
      use.bytes += frame_bytes(entry);
      const auto needed = needs_.packs.find(entry.score);
      if (needed == needs_.packs.end()) continue;
      const double bytes = needed_bytes_of_pack(entry, needed->second);
      copies_.push_back({&needed->first, number, bytes, holds_ranges(arena, i, needed->second)});
      use.needed += bytes;
    }
    for (const FrameEntry& entry : arena.index().nodes) {
      use.bytes += frame_bytes(entry);
      const auto needed = needs_.nodes.find(entry.score);
      if (needed == needs_.nodes.end()) continue;
      copies_.push_back({&*needed, number, frame_bytes(entry)});
      use.needed += frame_bytes(entry);
    }
    uses_.push_back(use);
  }

  std::set<ArenaId> victims(double merge_bytes_max) {
    std::sort(copies_.begin(), copies_.end(),
              [](const Copy& a, const Copy& b) { return std::tie(*a.score, a.arena) < std::tie(*b.score, b.arena); });
    std::set<ArenaId> victims;
    // Without the arenas that leave, others may not be worth keeping: the next prune is to find nothing to do.
    for (bool any = true; any;) {
      any = false;
      count_copies();
      for (ArenaUse& use : uses_) {
        if (use.leaves || (use.counted > 0 && use.counted >= rules_.live_share_min * use.bytes)) continue;
        victims.insert(use.id);
        use.leaves = any = true;
      }
    }
    add_merged(merge_bytes_max, victims);
    return victims;
  }

 private:
  bool stays_with(const ArenaUse& use, double bytes) const {
    return bytes > 0 && bytes >= rules_.live_share_min * use.bytes;
  }

  /// Counts one copy of each pack and node that the arenas have which do not leave: in one that stays anyway, if there
  /// is one.
  void count_copies() {
    for (ArenaUse& use : uses_) {
      use.unique = 0;
      use.counted = rules_.live_share_min > 0 ? 0 : use.needed;
    }
    if (rules_.live_share_min == 0) return;
    for_each_score([this](auto begin, auto end) {
      if (end - begin == 1) uses_[begin->arena].unique += begin->bytes;
    });
    auto preference = [this](const Copy& copy) {
      const ArenaUse& use = uses_[copy.arena];
      return std::tuple(!copy.complete, !use.whole_index, !stays_with(use, use.unique), !stays_with(use, use.needed),
                        -use.unique, -use.needed, use.id);
    };
    for_each_score([&](auto begin, auto end) {
      const auto home =
          std::min_element(begin, end, [&](const Copy& a, const Copy& b) { return preference(a) < preference(b); });
      for (auto copy = begin; copy != end; ++copy) {
        // What no copy has all of is needed in each, until an evacuation puts it together.
        if (copy == home || !home->complete) uses_[copy->arena].counted += copy->bytes;
      }
    });
  }

  /// Visits the copies of each pack and node in the arenas that do not leave; none of what is put together anew since
  /// one that leaves has some of it, and no other one has all.
  template <class Visit>
  void for_each_score(const Visit& visit) {
    std::vector<Copy> staying;
    for (auto begin = copies_.begin(); begin != copies_.end();) {
      const auto end =
          std::find_if(begin, copies_.end(), [&](const Copy& copy) { return *copy.score != *begin->score; });
      staying.clear();
      std::copy_if(begin, end, std::back_inserter(staying),
                   [&](const Copy& copy) { return !uses_[copy.arena].leaves; });
      const bool any_leaves = staying.size() < static_cast<size_t>(end - begin);
      const bool whole = std::any_of(staying.begin(), staying.end(), [](const Copy& copy) { return copy.complete; });
      if (!staying.empty() && (whole || !any_leaves)) visit(staying.begin(), staying.end());
      begin = end;
    }
  }

  /// Small arenas, beginning with the smallest, as long as each is no larger than those before it together: so what
  /// they become is at least twice as large as each was, and a byte is copied only so often as sizes can double. What
  /// is left is ever twice as large as what is smaller, hence few.
  void add_merged(double bytes_max, std::set<ArenaId>& victims) const {
    std::vector<const ArenaUse*> small;
    for (const ArenaUse& use : uses_) {
      if (use.whole_index && use.bytes < static_cast<double>(rules_.merge_below_bytes) && !victims.contains(use.id))
        small.push_back(&use);
    }
    std::sort(small.begin(), small.end(), [](const ArenaUse* a, const ArenaUse* b) {
      return std::tie(a->counted, a->id) < std::tie(b->counted, b->id);
    });
    size_t merged = 0;
    double sum = 0;
    for (size_t i = 0; i < small.size() && sum + small[i]->counted <= bytes_max; ++i) {
      if (small[i]->counted <= sum) merged = i + 1;
      sum += small[i]->counted;
    }
    if (merged < kMergedArenasMin) return;
    for (size_t i = 0; i < merged; ++i) victims.insert(small[i]->id);
  }

  const Needs& needs_;
  const VictimRules& rules_;
  std::vector<ArenaUse> uses_;
  std::vector<Copy> copies_;
};
}  // namespace

double needed_bytes(const ArenaReader& arena, const Needs& needs) {
  double bytes = 0;
  for (const FrameEntry& entry : arena.index().packs) {
    const auto needed = needs.packs.find(entry.score);
    if (needed != needs.packs.end()) bytes += needed_bytes_of_pack(entry, needed->second);
  }
  for (const FrameEntry& entry : arena.index().nodes) {
    if (needs.nodes.contains(entry.score)) bytes += frame_bytes(entry);
  }
  return bytes;
}

Result<std::set<ArenaId>> choose_victims(const Store& store, const std::vector<ArenaId>& candidates, const Needs& needs,
                                         const VictimRules& rules, ProgressSink& progress) {
  HomePlan plan(needs, rules);
  VARVE_TRY(each_arena(store, candidates, [&](const ArenaId&, const Result<std::shared_ptr<ArenaReader>>& arena) {
    if (progress.cancelled()) return Status::cancelled();
    if (arena.ok()) {
      plan.add(**arena);
    } else if (arena.status().code() != StatusCode::not_found) {  // not there: another prune has removed it
      progress.warning(arena.status().with_context("left alone"));
    }
    return Status();
  }));
  // What is merged lies twice for a while: where there is no room for that, it is not begun.
  const Result<uint64_t> room = store.backend().free_bytes(store.arenas_path());
  return plan.victims(room.ok() ? static_cast<double>(*room) / 2 : static_cast<double>(UINT64_MAX));
}

namespace {
/// The last line of a mark that is complete, after the names of so many leases.
std::string mark_end(size_t lease_count) { return "end " + std::to_string(lease_count) + "\n"; }

/// "ID.SUFFIX"
bool is_id_with(std::string_view name, std::string_view suffix) {
  return name.ends_with(suffix) && UniqueId::parse(name.substr(0, name.size() - suffix.size())).ok();
}

/// What Records leave in a folder if they are stopped (FORMAT.md, "The folder of a store").
bool is_run_draft(std::string_view name) { return is_id_with(name, ".tmp") || is_id_with(name, ".stale"); }
bool is_header_draft(std::string_view name) {
  for (const std::string_view header : {"varve.store.", "varve.spread."}) {
    if (name.starts_with(header)) return is_id_with(name.substr(header.size()), ".tmp");
  }
  return false;
}

/// About what an arena that others are emptied into has at most, unless one of them has more.
constexpr auto kEmptiedTogetherBytes = static_cast<double>(1_GiB);

class Pruner {
 public:
  Pruner(const Store& store, const PruneOptions& options, ProgressSink& progress)
      : store_(store), backend_(store.backend()), options_(options), progress_(progress) {}

  Result<PruneReport> run() {
    const Status dropped = drop_sets();
    if (options_.dry_run && dropped.ok()) return report_;
    const Status freed = dropped.ok() ? free_space() : dropped;
    if (!freed.ok()) return told_what_was_dropped(freed);
    return report_;
  }

 private:
  Status free_space() {
    progress_.phase("pruning");
    VARVE_TRY(remove_dead_leases());
    VARVE_TRY(remove_dead_parts());
    VARVE_TRY(unhide_sets());
    VARVE_ASSIGN(const uint64_t old_remarks, Remarks(store_).tidy(progress_));
    report_.leftover_files += old_remarks;
    VARVE_ASSIGN(std::set<ArenaId> victims, mark_victims());
    VARVE_TRY(wait_for_writers());
    // Whoever could refer to the victims has committed or never will: what is needed of them is now certain.
    VARVE_ASSIGN(Needs needs, needs_of_sets(store_));
    writers_remain_ = writers_remain_ || needs.uncertain;
    VARVE_TRY(remove_victims(victims, needs));
    return at_once(2, [&](size_t i) -> Status {
      if (i == 0) {
        VARVE_TRY(remove_leftovers());
        return remove_old_drafts();
      }
      VARVE_ASSIGN(report_.bytes_after, arena_bytes(store_));
      return {};
    });
  }

  Status at_once(size_t count, const std::function<Status(size_t)>& body) const {
    return parallel_for(count, backend_.operations_at_once(), body);
  }

  /// A failure says what is done all the same, and does not advise to do what has just failed.
  Status told_what_was_dropped(const Status& failure) const {
    const Status told = failure.code() != StatusCode::no_space
                            ? failure
                            : Status(failure.code(), std::string(failure.message()), std::string(failure.subject()),
                                     "remove other files from that disk, and run it again");
    if (report_.dropped.empty()) return told;
    std::string names;
    for (const SetName& name : report_.dropped) names += (names.empty() ? "" : ", ") + name.to_string();
    return told.with_context(fmt::format("{} {} dropped, but not all of the space could be given back", names,
                                         report_.dropped.size() == 1 ? "was" : "were"));
  }

  Status drop_sets() {
    if (!options_.keep.any()) return {};
    VARVE_ASSIGN(const std::vector<LeavingSet> leaving, sets_to_drop(store_, options_.keep, options_.job, progress_));
    if (leaving.empty()) return {};
    std::vector<SetName> names;
    std::map<SetName, const LeavingSet*> judged;
    for (const LeavingSet& set : leaving) {
      names.push_back(set.name);
      judged.emplace(set.name, &set);
    }
    if (options_.dry_run) {
      report_.dropped = names;
      return {};
    }
    VARVE_TRY(remove_used_parts(store_).status());
    return Catalog(store_).remove_all(names, report_.dropped, [&](const SetRecord& now, const SetRemarks* said) {
      return is_as_judged(*judged.at(now.name), now, said);
    });
  }

  /// Somebody may have made the set anew since it was judged, or given it a tag that keeps it.
  bool is_as_judged(const LeavingSet& judged, const SetRecord& now, const SetRemarks* said) const {
    const std::vector<std::string>& tags = options_.keep.tags;
    if (said != nullptr &&
        std::any_of(tags.begin(), tags.end(), [&](const std::string& tag) { return said->tags.contains(tag); }))
      return false;
    return now.number == judged.number && now.created_s == judged.created_s;
  }

  /// The leases that are there, and when each was touched last.
  Result<std::map<std::string, int64_t>> leases() const {
    VARVE_ASSIGN(const auto objects, backend_.list_with_status(store_.writers_path()));
    std::map<std::string, int64_t> beats;
    for (const auto& [name, status] : objects) {
      VARVE_TRY(status.status());  // only a lease that is gone is the lease of a writer that has finished
      beats[name] = status->modified_ns;
    }
    return beats;
  }

  /// Gives up the writers that are known to be gone, or have shown no sign of life for silence_seconds, so that what
  /// they wrote and never committed can go with this prune. Both times are the file system's, and a writer that lives
  /// after all, as after a jump of that clock, only has to start over.
  Status remove_dead_leases() {
    VARVE_ASSIGN(auto writers, leases());
    if (writers.empty()) return {};
    VARVE_ASSIGN(int64_t now_ns, backend_.records().now());
    for (const auto& [name, beat_ns] : writers) {
      const bool silent = is_silent(beat_ns, now_ns, options_.silence_seconds);
      if (!silent && !WriterLease::known_dead(store_, name)) continue;
      VARVE_ASSIGN(const bool gone, WriterLease::give_up(store_, name, static_cast<double>(now_ns - beat_ns) * 1e-9));
      report_.leftover_files += gone ? 1 : 0;
    }
    return {};
  }

  /// What removals that were stopped have put aside.
  Status unhide_sets() const {
    const Catalog catalog(store_);
    VARVE_ASSIGN(const Catalog::Listed listed, catalog.list());
    std::set<std::string> jobs;
    for (const std::string& path : listed.aside) jobs.insert(base_name(parent_path(path)));
    for (const std::string& job : jobs) VARVE_TRY(catalog.unhide(job));
    return {};
  }

  /// Removes the parts that became sets, and gives up those that wait for parts that do not come.
  Status remove_dead_parts() {
    const auto there = backend_.list_with_status(parts_path(store_));
    if (there.status().code() == StatusCode::not_found || (there.ok() && there->empty())) return {};
    VARVE_ASSIGN(const uint64_t used, remove_used_parts(store_));
    report_.leftover_files += used;
    VARVE_ASSIGN(const std::vector<PartName> parts, list_parts(store_));
    VARVE_ASSIGN(const std::vector<PartName> failures, list_parts(store_, PartName::Kind::failed));
    if (parts.empty() && failures.empty()) return {};
    VARVE_ASSIGN(const int64_t now_ns, backend_.records().now());
    VARVE_TRY(remove_old_parts(parts, PartName::Kind::delivered, now_ns));
    return remove_old_parts(failures, PartName::Kind::failed, now_ns);
  }

  Status remove_old_parts(const std::vector<PartName>& names, PartName::Kind kind, int64_t now_ns) {
    for (const PartName& name : names) {
      const std::string path = join_path(parts_path(store_), name.file_name(kind));
      VARVE_ASSIGN(const bool old, is_left_for(backend_, path, now_ns, options_.part_seconds_max));
      if (!old) continue;
      VARVE_TRY(kind == PartName::Kind::delivered ? remove_part(store_, name) : remove_failure(store_, name));
      ++report_.leftover_files;
    }
    return {};
  }

  /// Marks the arenas that are to go. Once marked, an arena stays so until it is removed: no new reference is made into
  /// it, and no prune counts on it.
  ///
  /// A mark holds the names of the leases that were there when it was durable: those writers, and no later ones, may
  /// not have seen it. One that says nothing yet (its prune was killed) is given the leases of now.
  Result<std::set<ArenaId>> mark_victims() {
    // In this order: the writer of an arena that is listed here but has no lease below has finished, and its set is
    // seen by needs_of_sets().
    VARVE_ASSIGN(const auto arenas, list_arena_sizes(store_));
    for (const auto& [id, bytes] : arenas) report_.bytes_before += bytes;
    VARVE_ASSIGN(auto writers, leases());
    VARVE_ASSIGN(Needs needs, needs_of_sets(store_, /*certain=*/false, progress_));
    VARVE_ASSIGN(std::vector<ArenaId> condemned, list_condemned(store_));
    // If the store has grown since it was opened here, a marked arena at a place that is not known would be taken for
    // gone: its mark would go, and not the arena. Who has marked it found the store grown, so that this is asked after
    // the marks were listed.
    VARVE_TRY(store_.check_spread());
    std::set<ArenaId> victims(condemned.begin(), condemned.end());
    std::vector<ArenaId> candidates;
    for (const auto& [id, bytes] : arenas) {
      const bool owned = std::any_of(writers.begin(), writers.end(),
                                     [&, id = id](const auto& lease) { return WriterLease::owns(lease.first, id); });
      if (!owned && !victims.contains(id)) candidates.push_back(id);
    }
    const double live_share_min = protects_arenas() ? 0 : options_.live_share_min;
    const bool merges = options_.wait_seconds > 0 && live_share_min > 0;
    const VictimRules rules{live_share_min, merges ? options_.merge_below_bytes : 0};
    VARVE_ASSIGN(const std::set<ArenaId> chosen, choose_victims(store_, candidates, needs, rules, progress_));
    VARVE_ASSIGN(Marks marks, mark(chosen, victims));
    VARVE_ASSIGN(auto unaware, leases());
    VARVE_TRY(note_unaware(victims, marks, unaware));
    if (unaware.empty()) {
      untold_ = std::move(marks);
    } else {
      VARVE_TRY(tell_unaware(marks, unaware));
    }
    return victims;
  }

  /// Whether other nodes rely on arenas of this one as they are, each of which is part of what rebuilds theirs. Of a
  /// store on servers nobody does, and they refuse to look.
  bool protects_arenas() const {
    const Result<std::vector<DirectoryEntry>> protecting = backend_.list(join_path(store_.path(), kRedundancyFolder));
    const StatusCode code = protecting.status().code();
    if (!protecting.ok()) return code != StatusCode::not_found && code != StatusCode::permission_denied;
    if (protecting->empty()) return false;
    // What is left of sets that were dropped protects nothing.
    std::set<std::string> names;
    for (const DirectoryEntry& entry : *protecting) names.insert(entry.name);
    const Result<std::vector<SetName>> sets = Catalog(store_).sets();
    return !sets.ok() ||
           std::any_of(sets->begin(), sets->end(), [&](const SetName& set) { return names.contains(set.key()); });
  }

  /// Whether somebody is about to make what protects other nodes: his lease says what a set needs that is there already
  /// (COMMIT.md, "Protecting the sets of nodes"). Nobody does in a bucket, where leases may outlive their commits.
  bool is_protecting() const {
    if (backend_.records().late_commit_seconds() > 0) return false;
    const auto writers = leases();
    if (!writers.ok()) return true;
    return std::any_of(writers->begin(), writers->end(), [this](const auto& lease) {
      const Result<std::optional<SetRecord>> record = record_in_lease(store_, lease.first);
      if (!record.ok()) return record.status().code() != StatusCode::not_found;
      if (!*record) return false;
      const Result<SetRecord> set = Catalog(store_).read((*record)->name);
      if (!set.ok()) return set.status().code() != StatusCode::not_found;
      const std::string path = join_path(store_.writers_path(), lease.first);
      return encode_set_record(*set, store_.score()) == encode_set_record(**record, store_.score()) &&
             backend_.status(path).status().code() != StatusCode::not_found;  // else it has just become the set
    });
  }

  using Marks = std::map<ArenaId, std::unique_ptr<HeldRecord>>;

  /// Marks the chosen arenas, which become victims. Returns the marks that were not there.
  Result<Marks> mark(const std::set<ArenaId>& chosen, std::set<ArenaId>& victims) {
    const std::vector<ArenaId> ids(chosen.begin(), chosen.end());
    std::vector<std::unique_ptr<HeldRecord>> made(ids.size());
    std::vector<char> marked(ids.size());
    Mutex mutex;  // guards `full`
    Status full;
    VARVE_TRY(at_once(ids.size(), [&](size_t i) -> Status {
      {
        const MutexLock lock(mutex);
        if (!full.ok()) return {};
      }
      Result<std::unique_ptr<HeldRecord>> mark =
          backend_.records().hold(join_path(store_.condemned_path(), ids[i].hex()), {});
      if (mark.status().code() == StatusCode::no_space) {
        const MutexLock lock(mutex);
        full = mark.status();
        return {};
      }
      if (!mark.ok() && mark.status().code() != StatusCode::already_exists) return mark.status();
      marked[i] = 1;
      if (mark.ok()) made[i] = std::move(*mark);
      return {};
    }));
    Marks marks;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (marked[i] != 0) victims.insert(ids[i]);
      if (made[i] != nullptr) marks[ids[i]] = std::move(made[i]);
    }
    // On a full disk, those that can be marked make room for the others.
    if (!full.ok() && victims.empty()) return full;
    VARVE_TRY(backend_.settle(store_.condemned_path()));
    return marks;
  }

  /// Writes the names of the leases into the marks.
  Status tell_unaware(const Marks& marks, const std::map<std::string, int64_t>& unaware) {
    std::string text;
    for (const auto& [name, beat] : unaware) text += name + "\n";
    text += mark_end(unaware.size());
    std::vector<HeldRecord*> records;
    for (const auto& [id, record] : marks) records.push_back(record.get());
    return at_once(records.size(), [&](size_t i) {
      const Status written = records[i]->rewrite(as_bytes(text));
      // No space: then it says nothing, as far as is known, and all writers of now are waited for. Not there: another
      // prune has removed arena and mark.
      const bool harmless = written.code() == StatusCode::no_space || written.code() == StatusCode::not_found;
      return harmless ? Status() : written;
    });
  }

  /// Adds the writers that the victims' marks name to those to be waited for; all of `now` for one that does not say,
  /// and for those that were just made.
  Status note_unaware(const std::set<ArenaId>& victims, const Marks& own, const std::map<std::string, int64_t>& now) {
    if (!own.empty()) waiting_ = now;
    std::vector<ArenaId> others;
    std::copy_if(victims.begin(), victims.end(), std::back_inserter(others),
                 [&](const ArenaId& id) { return !own.contains(id); });
    std::vector<Result<ByteVector>> texts(others.size(), ByteVector());
    VARVE_TRY(at_once(others.size(), [&](size_t i) -> Status {
      texts[i] = backend_.read_record(join_path(store_.condemned_path(), others[i].hex()), 16_MiB);
      return {};
    }));
    for (const Result<ByteVector>& raw : texts) {
      // Another prune has removed arena and mark.
      if (raw.status().code() == StatusCode::not_found) continue;
      const std::string text(raw.ok() ? as_text(*raw) : std::string_view());
      const auto line_count = static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
      const bool says =
          line_count > 0 && text.ends_with(mark_end(line_count - 1)) && text.find('\0') == std::string::npos;
      for (const auto& [name, beat] : now) {
        if (!says || text.find(name + "\n") != std::string::npos) waiting_[name] = beat;
      }
    }
    return {};
  }

  /// Waits for the writers that may not have seen the marks. One that shows no sign of life for wait_seconds is given
  /// up: its lease is removed, so that it cannot commit. Those still alive are left to the next prune.
  Status wait_for_writers() {
    using Clock = MonotonicClock;
    std::map<std::string, int64_t>& waiting = waiting_;
    const auto begin = Clock::now();
    while (!waiting.empty()) {
      if (progress_.cancelled()) return Status::cancelled();
      VARVE_ASSIGN(auto now, leases());
      const double waited = std::chrono::duration<double>(Clock::now() - begin).count();
      const bool over = waited >= options_.wait_seconds;
      const bool long_enough = waited >= options_.silence_seconds;
      for (auto it = waiting.begin(); it != waiting.end();) {
        auto current = now.find(it->first);
        if (current == now.end()) {
          it = waiting.erase(it);
        } else if ((long_enough && current->second == it->second) || WriterLease::known_dead(store_, it->first)) {
          VARVE_ASSIGN(const bool gone, WriterLease::give_up(store_, it->first, waited));
          report_.leftover_files += gone ? 1 : 0;
          it = gone ? waiting.erase(it) : std::next(it);
        } else {
          ++it;
        }
      }
      if (over) break;
      if (!waiting.empty()) sleep_for(std::chrono::milliseconds(20));
    }
    std::erase_if(waiting, [this](const auto& lease) { return holds_record(lease.first); });
    writers_remain_ = !waiting.empty();
    return {};
  }

  /// Whether the writer has said all that it will refer to, so that this is known, whatever becomes of it. In a bucket
  /// such a lease stays for an hour, where a commit may yet take effect.
  bool holds_record(const std::string& lease) const {
    const Result<std::optional<SetRecord>> record = record_in_lease(store_, lease);
    return record.ok() && *record;
  }

  Status remove_victims(const std::set<ArenaId>& victims, const Needs& needs) {
    if (writers_remain_) {
      report_.waiting_arenas = victims.size();
      return tell_unaware(untold_, {});
    }
    // The lease of a writer that was given up must not come back, nor a set that somebody dropped or a part that was
    // removed, after a power cut when the arenas are gone.
    VARVE_TRY(backend_.settle(store_.writers_path()));
    VARVE_TRY(backend_.settle_with_folders(store_.sets_path()));
    const Status parts_synced = backend_.settle(parts_path(store_));
    if (parts_synced.code() != StatusCode::not_found) VARVE_TRY(parts_synced);
    // What nobody needs goes first, and what is elsewhere: on a full disk, copies of the rest may find room where it
    // was.
    std::set<ArenaId> dead, rest;
    for (const ArenaId& id : victims) (is_dead(id, needs) ? dead : rest).insert(id);
    VARVE_TRY(remove_arenas(dead));
    for (const ArenaId& id : dead) untold_.erase(id);
    VARVE_TRY(tell_unaware(untold_, {}));
    // Asked once more: who has begun to protect them before they were marked is seen, or what he has made; and whoever
    // begins after that relies on none that is marked.
    if (!rest.empty() && (is_protecting() || protects_arenas())) {
      std::erase_if(rest, [this](const ArenaId& id) { return is_whole(id); });
    }
    if (rest.empty()) return {};
    Evacuation evacuation(store_, needs, progress_);
    VARVE_TRY(evacuation.find_homes());
    const std::set<ArenaId> elsewhere = evacuation.held_elsewhere(rest);
    VARVE_TRY(remove_arenas(elsewhere));
    for (const ArenaId& id : elsewhere) rest.erase(id);
    for (const std::vector<ArenaId>& some : split(rest, needs)) {
      VARVE_TRY(evacuation.empty(some));
      report_.rewritten_packs = evacuation.copied_packs();
      std::set<ArenaId> empty;
      for (const ArenaId& id : some) {
        if (!evacuation.must_stay(id)) empty.insert(id);
      }
      VARVE_TRY(remove_arenas(empty));
    }
    return {};
  }

  /// The arenas that are emptied together, so that not all that is copied lies twice at the same time: those of which
  /// least is needed come first; those that are damaged last, as they may go once all else is safe.
  std::vector<std::vector<ArenaId>> split(const std::set<ArenaId>& victims, const Needs& needs) const {
    std::vector<std::tuple<bool, double, ArenaId>> sizes;
    for (const ArenaId& id : victims) {
      const Result<std::shared_ptr<ArenaReader>> arena = store_.arena(id);
      const bool damaged = !arena.ok() || !(*arena)->index_status().ok();
      sizes.emplace_back(damaged, arena.ok() ? needed_bytes(**arena, needs) : 0, id);
    }
    std::sort(sizes.begin(), sizes.end());
    std::vector<std::vector<ArenaId>> parts;
    double bytes = 0;
    for (const auto& [damaged, size, id] : sizes) {
      if (parts.empty() || bytes + size > kEmptiedTogetherBytes) {
        parts.emplace_back();
        bytes = 0;
      }
      parts.back().push_back(id);
      bytes += size;
    }
    return parts;
  }

  /// Whether nothing of it is needed, for certain.
  bool is_dead(const ArenaId& id, const Needs& needs) const {
    Result<std::shared_ptr<ArenaReader>> arena = store_.arena(id);
    return arena.ok() && (*arena)->index_status().ok() && needed_bytes(**arena, needs) == 0;
  }

  /// Whether it may be what other nodes rely on. One that is damaged is lost to them already, and is marked for that:
  /// by an empty mark, as prunes that are killed leave some, too.
  bool is_whole(const ArenaId& id) const {
    const Result<std::shared_ptr<ArenaReader>> arena = store_.arena(id);
    const StatusCode opened = arena.status().code();
    if (opened == StatusCode::not_found) return false;  // there is the mark alone, which is to go
    const Result<FileStatus> marked = backend_.status(join_path(store_.condemned_path(), id.hex()));
    if (marked.ok() && marked->bytes > 0) return true;
    bool whole = opened != StatusCode::corrupt;
    const auto note = [&](const Status& damage, std::optional<Score>) {
      whole = whole && damage.code() != StatusCode::corrupt;
    };
    if (arena.ok()) (*arena)->verify(/*deep=*/true, note, progress_);
    return whole;
  }

  Status remove_arenas(const std::set<ArenaId>& ids) {
    if (ids.empty()) return {};
    store_.drop_arena_cache();
    const std::vector<ArenaId> list(ids.begin(), ids.end());
    std::atomic<uint64_t> removed{0};
    const Status all_removed = at_once(list.size(), [&](size_t i) -> Status {
      VARVE_TRY(backend_.remove_if_there(store_.arena_path(list[i])));
      ++removed;
      return {};
    });
    report_.removed_arenas += removed;
    VARVE_TRY(all_removed);
    // The marks go after the arenas: an arena without its mark must not come back.
    VARVE_TRY(backend_.settle(store_.arenas_path()));
    VARVE_TRY(at_once(list.size(), [&](size_t i) {
      return backend_.remove_if_there(join_path(store_.condemned_path(), list[i].hex()));
    }));
    return backend_.settle(store_.condemned_path());
  }

  /// Unfinished objects of writers that are gone.
  Status remove_leftovers() {
    std::vector<std::string> arenas;
    std::vector<std::vector<std::string>> runs(store_.spread().places());
    VARVE_TRY(at_once(runs.size() + 1, [&](size_t i) -> Status {
      const bool last = i == runs.size();
      VARVE_ASSIGN((last ? arenas : runs[i]),
                   backend_.unfinished(last ? store_.arenas_path() : store_.index_path(static_cast<uint32_t>(i))));
      return {};
    }));
    VARVE_ASSIGN(auto writers, leases());  // after the lists: a writer's lease is there before its files
    for (const std::string& name : arenas) {
      const std::string file = base_name(name);
      Result<ArenaId> id = ArenaId::parse(std::string_view(file).substr(0, file.find('.')));
      const bool alive = id.ok() && std::any_of(writers.begin(), writers.end(),
                                                [&](const auto& lease) { return WriterLease::owns(lease.first, *id); });
      if (alive) continue;
      VARVE_TRY(backend_.remove_if_there(name));
      ++report_.leftover_files;
    }
    if (!writers.empty()) return {};
    for (const std::vector<std::string>& of_place : runs) {
      for (const std::string& name : of_place) VARVE_TRY(backend_.remove_if_there(name));
    }
    return {};
  }

  /// Headers and leases of jobs that were not completed, or were put aside, by who was killed. In a bucket, what has no
  /// last name is a server's, whose clients remove it.
  Status remove_old_drafts() {
    if (backend_.records().late_commit_seconds() > 0) return {};
    std::vector<std::string> drafts;
    for (const std::string& folder : {store_.path(), store_.runs_path()}) {
      const Result<std::vector<DirectoryEntry>> entries = backend_.list(folder);
      if (entries.status().code() == StatusCode::not_found) continue;
      VARVE_TRY(entries.status());
      for (const DirectoryEntry& entry : *entries) {
        const bool is_draft = folder == store_.path() ? is_header_draft(entry.name) : is_run_draft(entry.name);
        if (is_draft && !entry.is_directory) drafts.push_back(join_path(folder, entry.name));
      }
    }
    if (drafts.empty()) return {};
    VARVE_ASSIGN(const int64_t now_ns, backend_.records().now());
    for (const std::string& draft : drafts) {
      VARVE_ASSIGN(const bool old, is_left_for(backend_, draft, now_ns, kUnfinishedSecondsMax));
      if (!old) continue;
      VARVE_TRY(backend_.remove_if_there(draft));
      ++report_.leftover_files;
    }
    return {};
  }

  const Store& store_;
  Backend& backend_;
  const PruneOptions& options_;
  ProgressSink& progress_;
  PruneReport report_;
  std::map<std::string, int64_t>
      waiting_;  ///< leases of writers that may not have seen a mark, and their last sign of life
  /// Marks that were made while there was no lease. Most go at once with their arenas, so that a sync for each is
  /// saved; those that stay are told so.
  Marks untold_;
  bool writers_remain_ = false;
};
}  // namespace

Result<PruneReport> prune_store(const Store& store, const PruneOptions& options, ProgressSink& progress) {
  // What others have done to names counts, too, and is made durable here before it is relied on.
  VARVE_ASSIGN(const std::unique_ptr<PowerWatch> power, store.backend().watch_power());
  return Pruner(store, options, progress).run();
}

}  // namespace varve
