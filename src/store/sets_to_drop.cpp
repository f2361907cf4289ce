#include "store/sets_to_drop.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "core/sync.h"
#include "store/catalog.h"
#include "store/needs.h"
#include "store/remarks.h"

namespace varve {

namespace {
class SetChoice {
 public:
  SetChoice(const Store& store, const KeepRules& keep, const std::string& job, ProgressSink& progress)
      : store_(store), catalog_(store), keep_(keep), job_(job), progress_(progress) {}

  Result<std::vector<SetName>> choose() {
    VARVE_ASSIGN(const auto sets_of, look_at_sets());
    std::vector<SetName> leaving;
    std::vector<KeptSet> kept_sets;
    for (const auto& [job, sets] : sets_of) {
      const bool is_other_job = !job_.empty() && job != job_;
      const std::set<uint64_t> kept = kept_steps(sets, keep_, calendar_seconds());
      for (const AgedSet& set : sets) {
        if (is_other_job || kept.contains(set.step)) {
          const bool in_any_case = is_other_job || set.stays || set.step == sets.back().step;
          kept_sets.push_back({{job, set.step}, set.created_s, in_any_case});
        } else {
          leaving.push_back({job, set.step});
        }
      }
    }
    if (keep_.bytes_max) VARVE_TRY(choose_by_size(*keep_.bytes_max, kept_sets, leaving));
    std::sort(leaving.begin(), leaving.end());
    return leaving;
  }

 private:
  using FrameSizes = std::unordered_map<Score, double, ScoreHash>;
  struct KeptSet {
    SetName name;
    int64_t created_s = 0;
    bool in_any_case = false;
  };

  /// What the rules look at, by job.
  Result<std::map<std::string, std::vector<AgedSet>>> look_at_sets() const {
    VARVE_ASSIGN(const std::vector<SetName> names, catalog_.sets());
    VARVE_ASSIGN(const auto remarks, Remarks(store_).all());
    std::map<std::string, std::vector<AgedSet>> sets_of;
    for (const SetName& name : names) {
      // What other jobs need counts where sizes do.
      if (!job_.empty() && name.job != job_ && !keep_.bytes_max) continue;
      AgedSet set{.step = name.step};
      if (keep_.go_by_records() || time_of_step(name.step)) {
        const Result<SetRecord> record = catalog_.read(name);
        if (record.status().code() == StatusCode::not_found) continue;  // dropped by somebody else just now
        VARVE_TRY(record.status());
        set.number = record->number;
        set.created_s = record->created_s;
      }
      if (const auto said = remarks.find(name); said != remarks.end()) {
        const std::vector<std::string>& tags = keep_.tags;
        set.stays = said->second.pinned || std::any_of(tags.begin(), tags.end(), [&](const std::string& tag) {
                      return said->second.tags.contains(tag);
                    });
      }
      sets_of[name.job].push_back(set);
    }
    return sets_of;
  }

  /// Adds to `leaving` the oldest of `sets`, so that what the others need has no more than so many bytes, as it lies in
  /// the store now.
  Status choose_by_size(uint64_t bytes_max, std::vector<KeptSet>& sets, std::vector<SetName>& leaving) {
    std::sort(sets.begin(), sets.end(), [](const KeptSet& a, const KeptSet& b) {
      return std::tuple(!a.in_any_case, -a.created_s, b.name) < std::tuple(!b.in_any_case, -b.created_s, a.name);
    });
    VARVE_ASSIGN(auto sizes, sizes_of_frames());
    double bytes = 0;
    bool full = false;
    for (const KeptSet& set : sets) {
      if (!full || set.in_any_case) {
        const Result<SetRecord> record = catalog_.read(set.name);
        if (record.status().code() == StatusCode::not_found) continue;
        VARVE_TRY(record.status());
        const Result<SetNeeds> needs = needs_of_set(store_, *record, progress_);
        const Status known = catalog_.unless_dropped(set.name, needs.status());
        if (known.code() == StatusCode::not_found) continue;
        VARVE_TRY(known);
        bytes += take_sizes(*needs, sizes);
        full = bytes > static_cast<double>(bytes_max);
      }
      if (full && !set.in_any_case) leaving.push_back(set.name);
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
};
}  // namespace

Result<std::vector<SetName>> sets_to_drop(const Store& store, const KeepRules& keep, const std::string& job,
                                          ProgressSink& progress) {
  return SetChoice(store, keep, job, progress).choose();
}

}  // namespace varve
