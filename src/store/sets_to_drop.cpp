#include "store/sets_to_drop.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "core/sync.h"
#include "core/thread_pool.h"
#include "store/catalog.h"
#include "store/needs.h"
#include "store/remarks.h"

namespace varve {

namespace {
class SetChoice {
 public:
  SetChoice(const Store& store, const KeepRules& keep, const std::string& job, ProgressSink& progress)
      : store_(store), catalog_(store), keep_(keep), job_(job), progress_(progress) {}

  Result<std::vector<LeavingSet>> choose() {
    VARVE_ASSIGN(const auto sets_of, look_at_sets());
    const int64_t now_s = now_of_both();
    std::vector<LeavingSet> leaving;
    std::vector<KeptSet> kept_sets;
    for (const auto& [job, sets] : sets_of) {
      const bool is_other_job = !job_.empty() && job != job_;
      const std::set<uint64_t> kept = kept_steps(sets, keep_, now_s), newest = newest_steps(sets, 1);
      const std::vector<int64_t> times = believed_times(sets, now_s);
      for (size_t i = 0; i < sets.size(); ++i) {
        const AgedSet& set = sets[i];
        if (is_other_job || kept.contains(set.step)) {
          const bool in_any_case = is_other_job || set.stays || newest.contains(set.step);
          kept_sets.push_back({{{job, set.step}, set.number, set.created_s}, times[i], in_any_case});
        } else {
          leaving.push_back({{job, set.step}, set.number, set.created_s});
        }
      }
    }
    if (keep_.bytes_max) VARVE_TRY(choose_by_size(*keep_.bytes_max, kept_sets, leaving));
    std::sort(leaving.begin(), leaving.end(), [](const LeavingSet& a, const LeavingSet& b) { return a.name < b.name; });
    return leaving;
  }

 private:
  using FrameSizes = std::unordered_map<Score, double, ScoreHash>;
  struct KeptSet {
    LeavingSet set;
    int64_t saved_s = 0;  ///< believed_times()
    bool in_any_case = false;
  };

  /// The earlier of what the own clock and the store's say: a clock that is ahead makes no set old.
  int64_t now_of_both() const {
    const int64_t own_s = calendar_seconds();
    if (!keep_.within_seconds) return own_s;
    const Result<int64_t> store_ns = store_.backend().records().now();
    return store_ns.ok() ? std::min(own_s, *store_ns / 1'000'000'000) : own_s;
  }

  /// When the records of a job came to the store, by their paths.
  Result<std::map<std::string, int64_t>> arrivals(const std::string& job) const {
    std::map<std::string, int64_t> seconds;
    if (!keep_.within_seconds) return seconds;
    VARVE_ASSIGN(const auto objects, store_.backend().list_with_status(catalog_.job_path(job)));
    for (const auto& [name, status] : objects) {
      if (status.ok()) seconds[join_path(catalog_.job_path(job), name)] = status->modified_ns / 1'000'000'000;
    }
    return seconds;
  }

  /// What the rules look at, by job.
  Result<std::map<std::string, std::vector<AgedSet>>> look_at_sets() const {
    VARVE_ASSIGN(std::vector<SetName> names, catalog_.sets());
    VARVE_ASSIGN(const auto remarks, Remarks(store_).all());
    // What other jobs need counts where sizes do.
    if (!job_.empty() && !keep_.bytes_max) std::erase_if(names, [&](const SetName& name) { return name.job != job_; });
    std::vector<std::optional<AgedSet>> looked_at(names.size());
    const auto look_at = [&](size_t i) -> Status {
      const Result<SetRecord> record = catalog_.read(names[i]);
      if (record.status().code() == StatusCode::not_found) return {};  // dropped by somebody else just now
      // No rule can tell what it is, and perhaps it can be mended: it stays, and pushes nothing out.
      if (record.status().code() == StatusCode::corrupt) {
        looked_at[i] = AgedSet{.step = names[i].step, .stays = true, .is_known = false};
        return {};
      }
      VARVE_TRY(record.status());
      // Whether a share of one node belongs to the last checkpoint that all nodes have, this store alone cannot tell.
      const bool is_share = !record->has_all_ranks();
      if (is_share) ++share_count_;
      looked_at[i] = AgedSet{.step = names[i].step,
                             .number = record->number,
                             .created_s = record->created_s,
                             .stays = is_share,
                             .is_known = !is_share};
      return {};
    };
    VARVE_TRY(parallel_for(names.size(), store_.backend().operations_at_once(), look_at));
    if (share_count_ > 0) {
      progress_.warning(Status::unsupported(
          fmt::format("{} in this store {} of one node's ranks alone: no rule drops or counts {}",
                      share_count_ == 1 ? "1 set" : fmt::format("{} sets", share_count_.load()),
                      share_count_ == 1 ? "is" : "are", share_count_ == 1 ? "it" : "them"),
          store_.path(), "the job's runs drop what all nodes have newer ones of, as `keep` of the level says"));
    }
    std::map<std::string, std::vector<AgedSet>> sets_of;
    std::map<std::string, int64_t> arrived;
    for (size_t i = 0; i < names.size(); ++i) {
      const SetName& name = names[i];
      if (i == 0 || name.job != names[i - 1].job) {
        VARVE_ASSIGN(arrived, arrivals(name.job));
      }
      if (!looked_at[i]) continue;
      AgedSet set = *looked_at[i];
      if (const auto at = arrived.find(catalog_.record_path(name)); at != arrived.end()) set.arrived_s = at->second;
      if (const auto said = remarks.find(name); said != remarks.end()) {
        const std::vector<std::string>& tags = keep_.tags;
        set.stays = set.stays || said->second.pinned ||
                    std::any_of(tags.begin(), tags.end(),
                                [&](const std::string& tag) { return said->second.tags.contains(tag); });
      }
      sets_of[name.job].push_back(set);
    }
    return sets_of;
  }

  /// Adds to `leaving` the oldest of `sets`, so that what the others need has no more than so many bytes, as it lies in
  /// the store now.
  Status choose_by_size(uint64_t bytes_max, std::vector<KeptSet>& sets, std::vector<LeavingSet>& leaving) {
    std::sort(sets.begin(), sets.end(), [](const KeptSet& a, const KeptSet& b) {
      return std::tuple(!a.in_any_case, -a.saved_s, b.set.number, b.set.name) <
             std::tuple(!b.in_any_case, -b.saved_s, a.set.number, a.set.name);
    });
    VARVE_ASSIGN(auto sizes, sizes_of_frames());
    double bytes = 0;
    bool full = false;
    for (const KeptSet& set : sets) {
      if (!full || set.in_any_case) {
        const Result<SetRecord> record = catalog_.read(set.set.name);
        if (record.status().code() == StatusCode::not_found) continue;
        if (record.status().code() == StatusCode::corrupt && set.in_any_case) continue;  // it counts as nothing
        VARVE_TRY(record.status());
        const Result<SetNeeds> needs = needs_of_set(store_, *record, progress_);
        const Status known = catalog_.unless_dropped(set.set.name, needs.status());
        if (known.code() == StatusCode::not_found) continue;
        VARVE_TRY(known);
        bytes += take_sizes(*needs, sizes);
        full = bytes > static_cast<double>(bytes_max);
      }
      if (full && !set.in_any_case) leaving.push_back(set.set);
    }
    return {};
  }

  /// Of each pack and node: that of its largest copy.
  Result<FrameSizes> sizes_of_frames() {
    FrameSizes sizes;
    VARVE_ASSIGN(const std::vector<ArenaId> arenas, store_.list_arenas());
    VARVE_TRY(each_arena(store_, arenas, [&](const ArenaId&, const Result<std::shared_ptr<ArenaReader>>& arena) {
      if (progress_.cancelled()) return Status::cancelled();
      if (!arena.ok()) {  // what it has counts as nothing
        if (arena.status().code() != StatusCode::not_found) progress_.warning(arena.status());
        return Status();
      }
      for (const auto* frames : {&(*arena)->index().packs, &(*arena)->index().nodes}) {
        for (const FrameEntry& frame : *frames) {
          double& size = sizes[frame.score];
          size = std::max(size, frame_bytes(frame));
        }
      }
      return Status();
    }));
    return sizes;
  }

  /// The sizes of all that a set needs, of which each counts once.
  static double take_sizes(const SetNeeds& needs, FrameSizes& sizes) {
    double bytes = 0;
    const auto take = [&](const Score& score) {
      const auto size = sizes.find(score);
      if (size != sizes.end()) bytes += std::exchange(size->second, 0);
    };
    for (const auto& [score, need] : needs.packs) take(score);
    for (const auto& [score, hint] : needs.nodes) take(score);
    return bytes;
  }

  const Store& store_;
  const Catalog catalog_;
  const KeepRules& keep_;
  const std::string& job_;
  ProgressSink& progress_;
  mutable std::atomic<uint64_t> share_count_{0};  ///< sets that are one node's alone
};
}  // namespace

Result<std::vector<LeavingSet>> sets_to_drop(const Store& store, const KeepRules& keep, const std::string& job,
                                             ProgressSink& progress) {
  return SetChoice(store, keep, job, progress).choose();
}

}  // namespace varve
