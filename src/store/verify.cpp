#include "store/verify.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <unordered_map>

#include "comm/agreement.h"
#include "comm/process_share.h"
#include "store/chunk_index_run.h"
#include "store/pack_ranges.h"
#include "store/set_part.h"
#include "store/verify_findings.h"

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
  Verifier(const Store& store, bool deep, Communicator& ranks, ProgressSink& progress)
      : store_(store), deep_(deep), ranks_(ranks), progress_(progress) {}

  /// Every process reads what the sets need, and its share of the arenas; the first says what that means.
  Status run() {
    progress_.phase(deep_ ? "verifying every byte" : "verifying");
    VARVE_TRY(agree(ranks_, check_sets()));
    // All have found the same.
    if (ranks_.rank() != 0) report_.damages.clear();
    VARVE_ASSIGN(const std::vector<ArenaId> arenas, share_arenas());
    VARVE_TRY(agree(ranks_, check_arenas(arenas)));
    VARVE_TRY(gather_findings());
    if (ranks_.rank() == 0) check_packs();
    VARVE_TRY(follow_first(ranks_, ranks_.rank() == 0 ? check_index() : Status()));
    if (ranks_.rank_count() == 1) return {};
    VARVE_ASSIGN(const ByteVector findings,
                 ranks_.broadcast(ranks_.rank() == 0 ? encode_findings({report_, {}}) : ByteVector(), 0));
    VARVE_ASSIGN(Findings final, decode_findings(findings));
    report_ = std::move(final.report);
    return {};
  }
  VerifyReport take() && { return std::move(report_); }

 private:
  void report(const Status& what, const Users& users, std::optional<ArenaId> arena = {}, bool disposable = false) {
    Damage damage{
        what, {users.sets.begin(), users.sets.end()}, {users.files.begin(), users.files.end()}, disposable, arena};
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

  /// The arenas that this process is to check, of those that the first one finds.
  Result<std::vector<ArenaId>> share_arenas() {
    ByteVector raw;
    Status listed;
    if (ranks_.rank() == 0) {
      listed = list_arenas(raw);
    }
    VARVE_TRY(follow_first(ranks_, listed));
    VARVE_ASSIGN(const ByteVector all, ranks_.broadcast(raw, 0));
    ByteReader reader(all);
    VARVE_ASSIGN(const uint64_t total_bytes, reader.varint());
    progress_.total(total_bytes / ranks_.rank_count());
    ProcessShares shares(total_bytes, ranks_.rank_count());
    std::vector<ArenaId> own;
    while (!reader.at_end()) {
      ArenaId id;
      VARVE_ASSIGN(const ByteSpan id_bytes, reader.bytes(id.bytes.size()));
      std::copy(id_bytes.begin(), id_bytes.end(), id.bytes.begin());
      VARVE_ASSIGN(const uint64_t bytes, reader.varint());
      if (shares.take(bytes) == ranks_.rank()) own.push_back(id);
    }
    return own;
  }

  /// The bytes of all arenas, then each with its own.
  Status list_arenas(ByteVector& raw) const {
    VARVE_ASSIGN(const std::vector<ArenaId> arenas, store_.list_arenas());
    std::vector<uint64_t> bytes;
    for (const ArenaId& id : arenas) {
      const Result<FileStatus> status = store_.fs().stat(store_.arena_path(id));
      bytes.push_back(status.ok() ? status->bytes : 0);
    }
    ByteWriter w(raw);
    w.varint(std::accumulate(bytes.begin(), bytes.end(), uint64_t{0}));
    for (size_t i = 0; i < arenas.size(); ++i) {
      w.bytes(arenas[i].bytes);
      w.varint(bytes[i]);
    }
    return {};
  }

  /// What all processes have found is what the first one goes on with.
  Status gather_findings() {
    VARVE_ASSIGN(const auto all, ranks_.all_gather(encode_findings({report_, damaged_packs_})));
    if (ranks_.rank() != 0) return {};
    for (uint32_t rank = 1; rank < all.size(); ++rank) {
      VARVE_ASSIGN(Findings other, decode_findings(all[rank]));
      report_.arena_count += other.report.arena_count;
      report_.pack_count += other.report.pack_count;
      report_.checked_bytes += other.report.checked_bytes;
      std::move(other.report.damages.begin(), other.report.damages.end(), std::back_inserter(report_.damages));
      damaged_packs_.insert(other.damaged_packs.begin(), other.damaged_packs.end());
    }
    return {};
  }

  Status check_arenas(const std::vector<ArenaId>& arenas) {
    for (const ArenaId& id : arenas) {
      if (progress_.cancelled()) return Status::cancelled();
      Result<std::shared_ptr<ArenaReader>> arena = store_.arena(id);
      if (!arena.ok()) {
        report(arena.status(), users_of_arena(id), id);
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
      report(what, {}, arena);
      return;
    }
    auto pack = packs_.find(*score);
    auto node = node_users_.find(*score);
    // Another arena may hold a whole copy; then nobody is hurt.
    if (pack != packs_.end() && !whole_elsewhere(*score, arena, pack->second.ranges)) {
      damaged_packs_.insert(*score);
      report(what, pack->second.users, arena);
    } else if (node != node_users_.end()) {
      report(what, node->second, arena);
    } else {
      report(what, {}, arena);
    }
  }

  bool whole_elsewhere(const Score& score, const ArenaId& arena, const std::vector<Extent>& ranges) const {
    Result<std::vector<Store::Place>> places = store_.find_pack(score, arena, true);
    if (!places.ok()) return false;
    return std::any_of(places->begin(), places->end(), [&](const Store::Place& place) {
      return place.arena->id() != arena && reads_ranges(*place.arena, place.ordinal, ranges);
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
    for (uint32_t place = 0; place < store_.spread().places(); ++place) check_index_of(store_.index_path(place));
    return {};
  }

  void check_index_of(const std::string& folder) {
    Result<std::vector<DirectoryEntry>> entries = store_.fs().list(folder);
    if (!entries.ok()) return;  // the next save makes it anew
    for (const DirectoryEntry& entry : *entries) {
      if (!entry.name.ends_with(".run")) continue;
      const std::string path = join_path(folder, entry.name);
      Result<std::unique_ptr<ChunkIndexRun>> run = ChunkIndexRun::open(store_.fs(), path, store_.id());
      Status status = run.ok() ? (*run)->verify() : run.status();
      if (status.ok() || status.code() == StatusCode::not_found) continue;
      if (status.code() == StatusCode::resource_limit) continue;  // too much to be fetched from a server
      // Nothing depends on it: thrown away, it is rebuilt by the next save.
      const bool removed = store_.fs().remove(path).ok();
      report(status.with_hint(removed ? "it was removed, and is rebuilt by the next save"
                                      : "remove it; the next save rebuilds it"),
             {}, {}, true);
    }
  }

  const Store& store_;
  const bool deep_;
  Communicator& ranks_;
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
  const std::unique_ptr<Communicator> alone = make_single_communicator();
  return verify_store_together(store, deep, *alone, progress);
}

Result<VerifyReport> verify_store_together(const Store& store, bool deep, Communicator& ranks, ProgressSink& progress) {
  SharedProgress shared(ranks, progress);
  Verifier verifier(store, deep, ranks, shared);
  VARVE_TRY(verifier.run());
  return std::move(verifier).take();
}

}  // namespace varve
