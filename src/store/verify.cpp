#include "store/verify.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "store/chunk_index_run.h"
#include "store/pack_ranges.h"
#include "store/set_part.h"

namespace varve {

namespace {
/// Whom a pack or a node serves: files of sets, and of parts of sets.
struct Users {
  std::set<std::string> sets;
  std::set<std::string> files;
  void add(const std::string& set, const std::string& path) {
    sets.insert(set);
    if (files.size() < kAffectedFilesMax) files.insert(set + ":" + path);
  }
};

/// Which ranges of a pack are referred to, and by whom.
struct PackUse {
  std::vector<Extent> ranges;
  ArenaId hint;
  Users users;
};

class Verifier {
 public:
  Verifier(const Store& store, bool deep, ProgressSink& progress) : store_(store), deep_(deep), progress_(progress) {}

  Status run() {
    progress_.phase(deep_ ? "verifying every byte" : "verifying");
    VARVE_TRY(check_sets());
    VARVE_TRY(check_arenas());
    check_packs();
    return check_index();
  }
  VerifyReport take() && { return std::move(report_); }

 private:
  void report(const Status& what, const Users& users, bool disposable = false) {
    Damage damage{what, {users.sets.begin(), users.sets.end()}, {users.files.begin(), users.files.end()}, disposable};
    report_.damages.push_back(std::move(damage));
  }

  Status check_sets() {
    // Parts first: one that becomes a set meanwhile is seen as such.
    VARVE_ASSIGN(std::vector<PartName> parts, list_parts(store_));
    for (const PartName& part : parts) {
      if (progress_.cancelled()) return Status::cancelled();
      check_record(part.to_string(), read_part(store_, part));
    }
    const Catalog catalog(store_);
    VARVE_ASSIGN(std::vector<SetName> sets, catalog.sets());
    report_.set_count = sets.size();
    for (const SetName& name : sets) {
      if (progress_.cancelled()) return Status::cancelled();
      check_record(name.to_string(), catalog.read(name));
    }
    return {};
  }

  void check_record(const std::string& name, const Result<SetRecord>& record) {
    Users users;
    users.add(name, "*");
    if (!record.ok()) {
      if (record.status().code() != StatusCode::not_found) report(record.status(), users);
      return;
    }
    for (const GroupRecord& group : record->groups) check_group(name, group, users);
  }

  void check_group(const std::string& name, const GroupRecord& group, const Users& set_users) {
    node_users_[group.root].add(name, "*");
    Result<Root> root = store_.read_root(group.root, group.hint);
    if (!root.ok()) return report(root.status(), set_users);
    for (const LeafLink& link : root->leaves) {
      node_users_[link.score].add(name, "*");
      Result<Leaf> leaf = store_.read_leaf(link);
      if (!leaf.ok()) {
        report(leaf.status(), set_users);
        continue;
      }
      for (const TreeFile& file : leaf->files) note_references(name, *leaf, file);
    }
  }

  void note_references(const std::string& name, const Leaf& leaf, const TreeFile& file) {
    for (const std::vector<Reference>& stream : file.streams) {
      for (const Reference& reference : stream) {
        if (reference.pack == Reference::kPattern) continue;
        const PackLink& link = leaf.packs[reference.pack];
        PackUse& use = packs_[link.score];
        add_range(use.ranges, {reference.offset, reference.bytes});
        use.hint = link.hint;
        use.users.add(name, file.path);
      }
    }
  }

  Status check_arenas() {
    VARVE_ASSIGN(std::vector<ArenaId> arenas, store_.list_arenas());
    uint64_t total = 0;
    for (const ArenaId& id : arenas) {
      if (Result<FileStatus> status = store_.fs().stat(store_.arena_path(id)); status.ok()) total += status->bytes;
    }
    progress_.total(total);
    for (const ArenaId& id : arenas) {
      if (progress_.cancelled()) return Status::cancelled();
      Result<std::shared_ptr<ArenaReader>> arena = store_.arena(id);
      if (!arena.ok()) {
        report(arena.status(), users_of_arena(id));
        continue;
      }
      ++report_.arena_count;
      report_.pack_count += (*arena)->index().packs.size();
      report_.checked_bytes += (*arena)->bytes();
      (*arena)->verify(deep_, [&](const Status& what, std::optional<Score> score) { report_frame(what, id, score); });
      progress_.advance((*arena)->bytes());
    }
    return {};
  }

  void report_frame(const Status& what, const ArenaId& arena, const std::optional<Score>& score) {
    if (!score) {
      // The arena's own index: what it lists was found by going through the file.
      report(what, {});
      return;
    }
    auto pack = packs_.find(*score);
    auto node = node_users_.find(*score);
    // Another arena may hold a whole copy; then nobody is hurt.
    if (pack != packs_.end() && !whole_elsewhere(*score, arena, pack->second.ranges)) {
      damaged_packs_.insert(*score);
      report(what, pack->second.users);
    } else if (node != node_users_.end()) {
      report(what, node->second);
    } else {
      report(what, {});
    }
  }

  bool whole_elsewhere(const Score& score, const ArenaId& arena, const std::vector<Extent>& ranges) const {
    Result<std::vector<Store::Place>> places = store_.find_pack(score, arena, true);
    if (!places.ok()) return false;
    return std::any_of(places->begin(), places->end(), [&](const Store::Place& place) {
      if (place.arena->id() == arena) return false;
      Result<Pack> pack = place.arena->read_pack(place.ordinal);
      return pack.ok() && std::all_of(ranges.begin(), ranges.end(),
                                      [&](const Extent& range) { return pack->range(range.offset, range.bytes).ok(); });
    });
  }

  /// Every pack that a set needs is somewhere, and as long as the references into it.
  void check_packs() {
    std::map<std::string, Users> missing;  // by the arena that they were in
    for (auto& [score, use] : packs_) {
      join_ranges(use.ranges);
      if (damaged_packs_.contains(score)) continue;
      Result<std::vector<Store::Place>> places = store_.find_pack(score, use.hint);
      if (places.ok() && !places->empty()) {
        if (any_holds(*places, use.ranges)) continue;
        places = store_.find_pack(score, use.hint, true);
        if (places.ok() && any_holds(*places, use.ranges)) continue;
        report(Status::corrupt("a pack lacks chunks that sets refer to", store_.arena_path(use.hint)), use.users);
        continue;
      }
      Users& users = missing[store_.arena_path(use.hint)];
      users.sets.insert(use.users.sets.begin(), use.users.sets.end());
      for (const std::string& file : use.users.files) {
        if (users.files.size() < kAffectedFilesMax) users.files.insert(file);
      }
    }
    for (const auto& [arena, users] : missing) {
      report(Status::not_found("packs that sets need are in no arena", arena,
                               "put the arena back from a copy of the store"),
             users);
    }
  }

  static bool any_holds(const std::vector<Store::Place>& places, const std::vector<Extent>& ranges) {
    return std::any_of(places.begin(), places.end(),
                       [&](const Store::Place& place) { return holds_ranges(*place.arena, place.ordinal, ranges); });
  }

  Users users_of_arena(const ArenaId& id) const {
    Users users;
    for (const auto& [score, use] : packs_) {
      if (use.hint != id) continue;
      users.sets.insert(use.users.sets.begin(), use.users.sets.end());
      for (const std::string& file : use.users.files) {
        if (users.files.size() < kAffectedFilesMax) users.files.insert(file);
      }
    }
    return users;
  }

  Status check_index() {
    Result<std::vector<DirectoryEntry>> entries = store_.fs().list(store_.index_path());
    if (!entries.ok()) return {};  // the next save makes it anew
    for (const DirectoryEntry& entry : *entries) {
      if (!entry.name.ends_with(".run")) continue;
      const std::string path = join_path(store_.index_path(), entry.name);
      Result<std::unique_ptr<ChunkIndexRun>> run = ChunkIndexRun::open(store_.fs(), path, store_.id());
      Status status = run.ok() ? (*run)->verify() : run.status();
      if (status.ok() || status.code() == StatusCode::not_found) continue;
      // Nothing depends on it: thrown away, it is rebuilt by the next save.
      const bool removed = store_.fs().remove(path).ok();
      report(status.with_hint(removed ? "it was removed, and is rebuilt by the next save"
                                      : "remove it; the next save rebuilds it"),
             {}, true);
    }
    return {};
  }

  const Store& store_;
  const bool deep_;
  ProgressSink& progress_;
  VerifyReport report_;
  std::unordered_map<Score, PackUse, ScoreHash> packs_;
  std::unordered_map<Score, Users, ScoreHash> node_users_;
  std::set<Score> damaged_packs_;
};
}  // namespace

bool VerifyReport::whole() const {
  return std::all_of(damages.begin(), damages.end(), [](const Damage& damage) { return damage.disposable; });
}

Result<VerifyReport> verify_store(const Store& store, bool deep, ProgressSink& progress) {
  Verifier verifier(store, deep, progress);
  VARVE_TRY(verifier.run());
  return std::move(verifier).take();
}

}  // namespace varve
