#include "redundancy/protected_files.h"

#include <set>

#include "redundancy/node_folder.h"
#include "store/catalog.h"
#include "store/set_needs.h"

namespace varve {

namespace {
/// Collects the arenas that hold what a set needs.
class NeededArenas {
 public:
  explicit NeededArenas(const Store& store) : store_(store) {}

  /// Where the hint says, if all of it is there; else wherever there is any of it, so that thinned copies are all
  /// taken.
  void add(const Score& score, const ArenaId& hint, bool is_pack) {
    if (find_in(hint, score, is_pack) == Found::whole) {
      arenas_.insert(hint);
    } else {
      elsewhere_.push_back({score, is_pack});
    }
  }
  Result<std::set<ArenaId>> finish() {
    if (elsewhere_.empty()) return std::move(arenas_);
    std::vector<Score> scores;
    for (const Need& need : elsewhere_) scores.push_back(need.score);
    VARVE_ASSIGN(const std::vector<ArenaId> places, store_.arenas_listing(scores));
    for (const Need& need : elsewhere_) {
      bool found = false;
      for (const ArenaId& place : places) {
        if (find_in(place, need.score, need.is_pack) == Found::nothing) continue;
        arenas_.insert(place);
        found = true;
      }
      if (found) continue;
      return Status::not_found("no arena holds what a set needs", store_.path(), "`varve verify` says what is damaged");
    }
    return std::move(arenas_);
  }

 private:
  enum class Found : uint8_t { nothing, part, whole };
  struct Need {
    Score score;
    bool is_pack = false;
  };
  Found find_in(const ArenaId& id, const Score& score, bool is_pack) const {
    const Result<std::shared_ptr<ArenaReader>> arena = store_.arena(id);
    if (!arena.ok()) return Found::nothing;
    const std::optional<size_t> ordinal = is_pack ? (*arena)->find_pack(score) : (*arena)->find_node(score);
    if (!ordinal) return Found::nothing;
    return is_pack && (*arena)->index().packs[*ordinal].missing_bytes > 0 ? Found::part : Found::whole;
  }

  const Store& store_;
  std::set<ArenaId> arenas_;
  std::vector<Need> elsewhere_;
};
}  // namespace

Result<std::vector<std::string>> protected_files_of(const Store& store, const SetName& set) {
  VARVE_ASSIGN(const SetRecord record, Catalog(store).read(set));
  VARVE_ASSIGN(const SetNeeds needs, needs_of_set(store, record, null_progress()));
  NeededArenas arenas(store);
  for (const auto& [score, need] : needs.packs) arenas.add(score, need.hint, true);
  for (const auto& [score, hint] : needs.nodes) arenas.add(score, hint, false);
  VARVE_ASSIGN(const std::set<ArenaId> needed, arenas.finish());
  std::vector<std::string> names = {std::string(NodeFolder::kHeaderName), std::string(NodeFolder::kRecordName)};
  for (const ArenaId& arena : needed) names.push_back(arena_file_name(arena));
  return names;
}

}  // namespace varve
