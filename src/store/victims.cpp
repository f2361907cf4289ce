#include "store/victims.h"

#include <algorithm>
#include <tuple>

#include "store/pack_ranges.h"

namespace varve {

namespace {
/// Few small arenas do no harm, and merging them would write their bytes again and again.
constexpr size_t kMergedArenasMin = 8;

double frame_bytes(const FrameEntry& entry) {
  return static_cast<double>(kFrameHeaderBytes + entry.meta_bytes) + static_cast<double>(entry.body_bytes);
}

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
    if (rules_.live_share_min > 0) {
      count_copies();
    } else {
      for (ArenaUse& use : uses_) use.counted = use.needed;
    }
    std::set<ArenaId> victims;
    for (const ArenaUse& use : uses_) {
      if (use.counted == 0 || use.counted < rules_.live_share_min * use.bytes) victims.insert(use.id);
    }
    add_merged(merge_bytes_max, victims);
    return victims;
  }

 private:
  bool stays_with(const ArenaUse& use, double bytes) const {
    return bytes > 0 && bytes >= rules_.live_share_min * use.bytes;
  }

  /// Counts one copy of each pack and node: in an arena that stays anyway, if there is one.
  void count_copies() {
    std::sort(copies_.begin(), copies_.end(),
              [](const Copy& a, const Copy& b) { return std::tie(*a.score, a.arena) < std::tie(*b.score, b.arena); });
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

  template <class Visit>
  void for_each_score(const Visit& visit) {
    for (auto begin = copies_.begin(); begin != copies_.end();) {
      const auto end =
          std::find_if(begin, copies_.end(), [&](const Copy& copy) { return *copy.score != *begin->score; });
      visit(begin, end);
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
  for (const ArenaId& id : candidates) {
    if (progress.cancelled()) return Status::cancelled();
    const Result<std::shared_ptr<ArenaReader>> arena = store.arena(id);
    if (arena.ok()) {
      plan.add(**arena);
    } else if (arena.status().code() != StatusCode::not_found) {  // not there: another prune has removed it
      progress.warning(arena.status().with_context("left alone"));
    }
  }
  // What is merged lies twice for a while: where there is no room for that, it is not begun.
  const Result<uint64_t> room = store.fs().free_bytes(store.arenas_path());
  return plan.victims(room.ok() ? static_cast<double>(*room) / 2 : static_cast<double>(UINT64_MAX));
}

}  // namespace varve
