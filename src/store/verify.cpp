#include "store/verify.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "comm/agreement.h"
#include "comm/process_share.h"
#include "core/status_codec.h"
#include "store/catalog.h"
#include "store/commit.h"
#include "store/index_run.h"
#include "store/needs.h"
#include "store/stored_copies.h"

namespace varve {

namespace {
/// Which ranges of a pack are referred to.
struct PackUse {
  std::vector<Extent> ranges;
  ArenaId hint;
};

class Verifier {
 public:
  Verifier(const Store& store, VerifyDepth depth, Communicator& ranks, ProgressSink& progress)
      : store_(store), depth_(depth), ranks_(ranks), progress_(progress) {}

  /// Every process reads what the sets need, and its share of the arenas; the first says what that means.
  Status run() {
    progress_.phase(depth_.share >= 1 ? "verifying every byte" : depth_.share > 0 ? "verifying a sample" : "verifying");
    VARVE_TRY(agree(ranks_, check_sets()));
    VARVE_ASSIGN(const std::vector<ArenaId> arenas, share_arenas());
    VARVE_TRY(agree(ranks_, check_arenas(arenas)));
    VARVE_TRY(gather_findings());
    if (has_passed_over_) store_.drop_arena_cache();
    if (ranks_.rank() == 0) check_packs();
    VARVE_TRY(follow_first(ranks_, ranks_.rank() == 0 ? report_packs() : Status()));
    VARVE_TRY(follow_first(ranks_, ranks_.rank() == 0 ? check_index() : Status()));
    if (ranks_.rank_count() > 1) {
      VARVE_ASSIGN(const ByteVector findings,
                   ranks_.broadcast(ranks_.rank() == 0 ? encode_findings({report_, {}}) : ByteVector(), 0));
      VARVE_ASSIGN(Findings final, decode_findings(findings));
      report_ = std::move(final.report);
    }
    // What this user may not read may be whole; damage to the rest is damage all the same.
    const Status refused = agree(ranks_, refused_);
    if (report_.damages.empty()) return refused;
    if (!refused.ok() && ranks_.rank() == 0) progress_.warning(refused);
    return {};
  }
  VerifyReport take() && { return std::move(report_); }

 private:
  /// Whether it is no damage, but that this user may not read it.
  bool is_refused(const Status& what) {
    if (what.code() != StatusCode::permission_denied) return false;
    if (refused_.ok()) refused_ = what.with_hint("verify it as a user who may read all of the store");
    return true;
  }

  /// Whether the arena went meanwhile.
  bool is_gone(const Status& what) {
    if (what.code() != StatusCode::not_found) return false;
    has_passed_over_ = true;
    return true;
  }

  void report(const Status& what, const Users& users, std::optional<ArenaId> arena = {}, bool disposable = false) {
    if (is_refused(what)) return;
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
      const size_t before = report_.damages.size();
      check_record(name.to_string(), catalog.read(name));
      // What was dropped meanwhile lacks nothing.
      if (report_.damages.size() > before && catalog.read(name).status().code() == StatusCode::not_found)
        report_.damages.erase(report_.damages.begin() + static_cast<ptrdiff_t>(before), report_.damages.end());
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
    Result<Root> root = read_root(store_, group.root, group.hint);
    if (!root.ok()) return report(root.status(), set_users);
    for (const LeafLink& link : root->leaves) {
      node_users_[link.score].add(name, "*");
      Result<Leaf> leaf = read_leaf(store_, link);
      if (!leaf.ok()) {
        report(leaf.status(), set_users);
        continue;
      }
      for (const NodeLink& piece : leaf->pieces) node_users_[piece.score].add(name, "*");
      for (const TreeFile& file : leaf->files) note_references(*leaf, file);
    }
  }

  void note_references(const Leaf& leaf, const TreeFile& file) {
    for (const std::vector<Reference>& stream : file.streams) {
      for (const Reference& reference : stream) {
        if (reference.pack == Reference::kPattern) continue;
        const PackLink& link = leaf.packs[reference.pack];
        PackUse& use = packs_[link.score];
        add_range(use.ranges, {reference.offset, reference.bytes});
        use.hint = link.hint;
      }
    }
  }

  /// The arenas that this process is to check, of those that the first one finds.
  Result<std::vector<ArenaId>> share_arenas() {
    VARVE_ASSIGN(const ByteVector all, told_by_first(ranks_, [this] { return list_arenas(); }));
    ByteReader reader(all);
    VARVE_ASSIGN(const uint64_t total_bytes, reader.varint());
    progress_.total(total_bytes / ranks_.rank_count());
    ProcessShares shares(total_bytes, ranks_.rank_count());
    std::vector<ArenaId> own;
    while (!reader.at_end()) {
      VARVE_ASSIGN(const ArenaId id, ArenaId::read(reader));
      VARVE_ASSIGN(const uint64_t bytes, reader.varint());
      if (shares.take(bytes) == ranks_.rank()) own.push_back(id);
    }
    return own;
  }

  /// The bytes of all arenas, then each with its own.
  Result<ByteVector> list_arenas() const {
    VARVE_ASSIGN(const std::vector<ArenaId> arenas, store_.list_arenas());
    std::vector<uint64_t> bytes;
    for (const ArenaId& id : arenas) {
      const Result<FileStatus> status = store_.backend().status(store_.arena_path(id));
      bytes.push_back(status.ok() ? status->bytes : 0);
    }
    ByteVector raw;
    ByteWriter w(raw);
    w.varint(std::accumulate(bytes.begin(), bytes.end(), uint64_t{0}));
    for (size_t i = 0; i < arenas.size(); ++i) {
      w.bytes(arenas[i].bytes);
      w.varint(bytes[i]);
    }
    return raw;
  }

  /// What all processes have found is what the first one goes on with.
  Status gather_findings() {
    VARVE_ASSIGN(const auto all, ranks_.all_gather(encode_findings({report_, pack_damages_})));
    if (ranks_.rank() != 0) return {};
    // All have looked at the sets, and mostly found the same.
    const auto key_of = [](const Damage& damage) {
      return std::tuple(damage.what.to_string(), damage.affected_sets, damage.arena);
    };
    std::set<decltype(key_of(std::declval<const Damage&>()))> known;
    for (const Damage& damage : report_.damages) known.insert(key_of(damage));
    for (uint32_t rank = 1; rank < all.size(); ++rank) {
      VARVE_ASSIGN(Findings other, decode_findings(all[rank]));
      std::erase_if(other.report.damages, [&](const Damage& damage) { return !known.insert(key_of(damage)).second; });
      report_.arena_count += other.report.arena_count;
      report_.pack_count += other.report.pack_count;
      report_.checked_bytes += other.report.checked_bytes;
      report_.sampled_count += other.report.sampled_count;
      std::move(other.report.damages.begin(), other.report.damages.end(), std::back_inserter(report_.damages));
      std::move(other.pack_damages.begin(), other.pack_damages.end(), std::back_inserter(pack_damages_));
    }
    return {};
  }

  Status check_arenas(const std::vector<ArenaId>& arenas) {
    VARVE_ASSIGN(const UniqueId seed, UniqueId::random());
    random_.seed(load_le<uint64_t>(seed.bytes.data()));
    for (const ArenaId& id : arenas) {
      if (progress_.cancelled()) return Status::cancelled();
      Result<std::shared_ptr<ArenaReader>> arena = store_.arena(id);
      // A prune has removed it since it was listed: what sets need of it is looked for elsewhere.
      if (is_gone(arena.status()) || is_refused(arena.status())) continue;
      if (!arena.ok()) {
        pack_damages_.push_back({arena.status(), id, packs_expected_in(id)});
        continue;
      }
      ++report_.arena_count;
      report_.pack_count += (*arena)->index().packs.size();
      report_.checked_bytes += (*arena)->bytes();
      (*arena)->verify(
          depth_.share >= 1, [&](const Status& what, std::optional<Score> score) { report_frame(what, id, score); },
          progress_);
      if (depth_.share >= 1) report_.sampled_count += (*arena)->index().packs.size();
      if (depth_.share > 0 && depth_.share < 1) check_some_packs(*arena);
    }
    if (not_drawn_.arena && report_.sampled_count == 0) check_pack(*not_drawn_.arena, not_drawn_.pack);
    return progress_.cancelled() ? Status::cancelled() : Status();
  }

  void check_some_packs(const std::shared_ptr<ArenaReader>& arena) {
    std::bernoulli_distribution is_drawn(depth_.share);
    for (size_t i = 0; i < arena->index().packs.size() && !progress_.cancelled(); ++i) {
      if (is_drawn(random_)) {
        check_pack(*arena, i);
      } else if (std::uniform_int_distribution<uint64_t>(0, not_drawn_.count++)(random_) == 0) {
        not_drawn_.arena = arena;
        not_drawn_.pack = i;
      }
    }
  }

  void check_pack(const ArenaReader& arena, size_t i) {
    ++report_.sampled_count;
    Result<Pack> pack = arena.read_pack(i);
    const Status whole = pack.ok() ? pack->verify_all() : pack.status();
    if (!whole.ok()) report_frame(whole, arena.id(), arena.index().packs[i].score);
  }

  void report_frame(const Status& what, const ArenaId& arena, const std::optional<Score>& score) {
    if (is_gone(what)) return;
    if (!score) {
      // The arena's own index: what it lists was found by going through the file.
      report(what, {}, arena);
      return;
    }
    if (packs_.contains(*score)) {
      pack_damages_.push_back({what, arena, {*score}});
      return;
    }
    auto node = node_users_.find(*score);
    report(what, node == node_users_.end() ? Users() : node->second, arena);
  }

  /// Every pack that a set needs is somewhere, and as long as the references into it.
  void check_packs() {
    std::set<Score> damaged;
    for (const PackDamage& damage : pack_damages_) damaged.insert(damage.packs.begin(), damage.packs.end());
    std::map<std::string, std::set<Score>> missing, lacking;  // by the arena that they should be in
    for (auto& [score, use] : packs_) {
      join_ranges(use.ranges);
      if (damaged.contains(score)) continue;
      Result<std::vector<StoredCopy>> places = find_pack_copies(store_, score, use.hint);
      if (is_refused(places.status()) || (places.ok() && any_holds(*places, use.ranges))) continue;
      const bool is_there = places.ok() && !places->empty();
      (is_there ? lacking : missing)[arena_name(store_, use.hint)].insert(score);
    }
    for (auto& [arena, packs] : lacking) {
      pack_damages_.push_back({Status::corrupt("a pack lacks chunks that sets refer to", arena), {}, std::move(packs)});
    }
    for (auto& [arena, packs] : missing) {
      pack_damages_.push_back({Status::corrupt("packs that sets need are in no arena", arena, Remedy::replace_arena),
                               {},
                               std::move(packs)});
    }
  }

  /// Says whom the damages to packs hurt. What is amiss in no arena, but only in what all of them hold together, is
  /// damage only if it hurts somebody.
  Status report_packs() {
    std::map<Score, ArenaId> packs;
    for (const PackDamage& damage : pack_damages_) {
      for (const Score& score : damage.packs) {
        const auto use = packs_.find(score);  // not there: of a set that only another process has seen
        packs.emplace(score, use == packs_.end() ? damage.arena.value_or(ArenaId{}) : use->second.hint);
      }
    }
    std::map<Score, Users> users_of;
    if (!packs.empty()) {
      VARVE_ASSIGN(users_of, users_of_lost_chunks(store_, packs, progress_));
    }
    for (const PackDamage& damage : pack_damages_) {
      Users users;
      for (const Score& score : damage.packs) {
        const auto found = users_of.find(score);
        if (found != users_of.end()) users.add(found->second);
      }
      if (damage.arena || !users.sets.empty()) report(damage.what, users, damage.arena);
    }
    return {};
  }

  static bool any_holds(const std::vector<StoredCopy>& places, const std::vector<Extent>& ranges) {
    return std::any_of(places.begin(), places.end(),
                       [&](const StoredCopy& place) { return holds_ranges(*place.arena, place.ordinal, ranges); });
  }

  std::set<Score> packs_expected_in(const ArenaId& id) const {
    std::set<Score> packs;
    for (const auto& [score, use] : packs_) {
      if (use.hint == id) packs.insert(score);
    }
    return packs;
  }

  Status check_index() {
    for (uint32_t place = 0; place < store_.spread().places(); ++place) check_index_of(store_.index_path(place));
    return {};
  }

  void check_index_of(const std::string& folder) {
    Result<std::vector<DirectoryEntry>> entries = store_.backend().list(folder);
    if (!entries.ok()) return;  // the next save makes it anew
    for (const DirectoryEntry& entry : *entries) {
      if (!entry.name.ends_with(".run")) continue;
      const std::string path = join_path(folder, entry.name);
      Result<std::unique_ptr<ChunkIndexRun>> run = ChunkIndexRun::open(store_.backend(), path, store_.id());
      Status status = run.ok() ? (*run)->verify() : run.status();
      if (status.ok() || status.code() == StatusCode::not_found) continue;
      // Not for this user, or not now.
      if (status.code() == StatusCode::permission_denied || status.code() == StatusCode::resource_limit) continue;
      // Nothing depends on it: thrown away, it is rebuilt by the next save.
      const bool removed = store_.backend().remove(path).ok();
      report(status.with_hint(removed ? "it was removed, and is rebuilt by the next save"
                                      : "remove it; the next save rebuilds it"),
             {}, {}, true);
    }
  }

  const Store& store_;
  const VerifyDepth depth_;
  std::mt19937_64 random_;  ///< which packs are drawn
  /// One of those that were not, for where none is.
  struct NotDrawn {
    std::shared_ptr<ArenaReader> arena;
    size_t pack = 0;
    uint64_t count = 0;  ///< of which it is one
  } not_drawn_;
  Communicator& ranks_;
  ProgressSink& progress_;
  VerifyReport report_;
  Status refused_;                ///< what this user may not read
  bool has_passed_over_ = false;  ///< what went meanwhile
  std::unordered_map<Score, PackUse, ScoreHash> packs_;
  std::unordered_map<Score, Users, ScoreHash> node_users_;
  std::vector<PackDamage> pack_damages_;
};
}  // namespace

bool VerifyReport::whole() const {
  return std::all_of(damages.begin(), damages.end(), [](const Damage& damage) { return damage.disposable; });
}

Result<VerifyReport> verify_store(const Store& store, VerifyDepth depth, ProgressSink& progress) {
  const std::unique_ptr<Communicator> alone = make_single_communicator();
  return verify_store_together(store, depth, *alone, progress);
}

Result<VerifyReport> verify_store_together(const Store& store, VerifyDepth depth, Communicator& ranks,
                                           ProgressSink& progress) {
  SharedProgress shared(ranks, progress);
  Verifier verifier(store, depth, ranks, shared);
  VARVE_TRY(verifier.run());
  return std::move(verifier).take();
}

namespace {
void encode_place(ByteWriter& w, const Status& what, const std::optional<ArenaId>& arena) {
  w.text(as_text(encode_status(what)));
  w.u8(arena ? 1 : 0);
  if (arena) w.bytes(arena->bytes);
}

Status decode_place(ByteReader& reader, Status& what, std::optional<ArenaId>& arena) {
  VARVE_ASSIGN(const std::string_view text, reader.text());
  VARVE_TRY(decode_status(as_bytes(text), what));
  VARVE_ASSIGN(const uint8_t in_arena, reader.u8());
  if (in_arena == 0) return {};
  VARVE_ASSIGN(arena, ArenaId::read(reader));
  return {};
}

Result<Damage> decode_damage(ByteReader& reader) {
  Damage damage;
  VARVE_TRY(decode_place(reader, damage.what, damage.arena));
  for (std::vector<std::string>* texts : {&damage.affected_sets, &damage.affected_files}) {
    VARVE_ASSIGN(const uint64_t count, reader.count(1));
    for (uint64_t i = 0; i < count; ++i) {
      VARVE_ASSIGN(const std::string_view text, reader.text());
      texts->emplace_back(text);
    }
  }
  VARVE_ASSIGN(const uint8_t disposable, reader.u8());
  damage.disposable = disposable != 0;
  return damage;
}

Result<PackDamage> decode_pack_damage(ByteReader& reader) {
  PackDamage damage;
  VARVE_TRY(decode_place(reader, damage.what, damage.arena));
  VARVE_ASSIGN(const uint64_t count, reader.count(Score().bytes.size()));
  for (uint64_t i = 0; i < count; ++i) {
    Score score;
    VARVE_ASSIGN(const ByteSpan bytes, reader.bytes(score.bytes.size()));
    std::copy(bytes.begin(), bytes.end(), score.bytes.begin());
    damage.packs.insert(score);
  }
  return damage;
}
}  // namespace

ByteVector encode_findings(const Findings& findings) {
  ByteVector raw;
  ByteWriter w(raw);
  const VerifyReport& report = findings.report;
  for (uint64_t number :
       {report.set_count, report.arena_count, report.pack_count, report.checked_bytes, report.sampled_count}) {
    w.varint(number);
  }
  w.varint(report.damages.size());
  for (const Damage& damage : report.damages) {
    encode_place(w, damage.what, damage.arena);
    for (const std::vector<std::string>* texts : {&damage.affected_sets, &damage.affected_files}) {
      w.varint(texts->size());
      for (const std::string& text : *texts) w.text(text);
    }
    w.u8(damage.disposable ? 1 : 0);
  }
  for (const PackDamage& damage : findings.pack_damages) {
    encode_place(w, damage.what, damage.arena);
    w.varint(damage.packs.size());
    for (const Score& score : damage.packs) w.bytes(score.bytes);
  }
  return raw;
}

Result<Findings> decode_findings(ByteSpan raw) {
  ByteReader reader(raw);
  Findings findings;
  VerifyReport& report = findings.report;
  for (uint64_t* number :
       {&report.set_count, &report.arena_count, &report.pack_count, &report.checked_bytes, &report.sampled_count}) {
    VARVE_ASSIGN(*number, reader.varint());
  }
  VARVE_ASSIGN(const uint64_t count, reader.count(1));
  for (uint64_t i = 0; i < count; ++i) {
    VARVE_ASSIGN(Damage damage, decode_damage(reader));
    report.damages.push_back(std::move(damage));
  }
  while (!reader.at_end()) {
    VARVE_ASSIGN(PackDamage damage, decode_pack_damage(reader));
    findings.pack_damages.push_back(std::move(damage));
  }
  return findings;
}

namespace {
/// What of a pack can be read from all its copies together.
std::vector<Extent> whole_extents(const Store& store, const Score& score, const ArenaId& hint) {
  const Result<std::vector<StoredCopy>> places = find_pack_copies(store, score, hint, true);
  std::vector<Extent> extents;
  if (!places.ok()) return extents;
  for (const StoredCopy& place : *places) {
    Result<Pack> pack = place.arena->read_pack(place.ordinal);
    if (!pack.ok()) continue;
    const std::vector<Extent> here = pack->whole_extents();
    extents.insert(extents.end(), here.begin(), here.end());
  }
  join_ranges(extents);
  return extents;
}

bool contains(const std::vector<Extent>& extents, uint64_t offset, uint64_t bytes) {
  auto after = std::upper_bound(extents.begin(), extents.end(), offset,
                                [](uint64_t value, const Extent& extent) { return value < extent.offset; });
  if (after == extents.begin()) return false;
  const Extent& at = *--after;
  return bytes <= at.bytes && offset - at.offset <= at.bytes - bytes;
}

class Search {
 public:
  Search(const Store& store, ProgressSink& progress) : store_(store), progress_(progress) {}

  Status look_at_packs(const std::map<Score, ArenaId>& packs) {
    for (const auto& [score, hint] : packs) {
      if (progress_.cancelled()) return Status::cancelled();
      whole_.emplace(score, whole_extents(store_, score, hint));
    }
    return {};
  }

  void look_at_record(const std::string& name, const Result<SetRecord>& record) {
    if (!record.ok()) return;
    for (const GroupRecord& group : record->groups) {
      const Result<Root> root = read_root(store_, group.root, group.hint);
      if (!root.ok()) continue;
      for (const LeafLink& link : root->leaves) {
        const Result<Leaf> leaf = read_leaf(store_, link);
        if (leaf.ok()) look_at_leaf(name, *leaf);
      }
    }
  }

  std::map<Score, Users> take() && { return std::move(users_); }

 private:
  void look_at_leaf(const std::string& name, const Leaf& leaf) {
    std::vector<const std::vector<Extent>*> whole_of;  // null: a pack that is not asked for
    for (const PackLink& link : leaf.packs) {
      const auto found = whole_.find(link.score);
      whole_of.push_back(found == whole_.end() ? nullptr : &found->second);
    }
    for (const TreeFile& file : leaf.files) {
      for (const std::vector<Reference>& stream : file.streams) {
        for (const Reference& reference : stream) {
          if (reference.pack == Reference::kPattern) continue;
          const std::vector<Extent>* whole = whole_of[reference.pack];
          if (whole == nullptr || contains(*whole, reference.offset, reference.bytes)) continue;
          users_[leaf.packs[reference.pack].score].add(name, file.path);
        }
      }
    }
  }

  const Store& store_;
  ProgressSink& progress_;
  std::map<Score, std::vector<Extent>> whole_;
  std::map<Score, Users> users_;
};
}  // namespace

void Users::add(const std::string& set, const std::string& path) {
  sets.insert(set);
  if (files.size() < kAffectedFilesMax) files.insert(set + ":" + path);
}

void Users::add(const Users& more) {
  sets.insert(more.sets.begin(), more.sets.end());
  for (const std::string& file : more.files) {
    if (files.size() < kAffectedFilesMax) files.insert(file);
  }
}

Result<std::map<Score, Users>> users_of_lost_chunks(const Store& store, const std::map<Score, ArenaId>& packs,
                                                    ProgressSink& progress) {
  Search search(store, progress);
  VARVE_TRY(search.look_at_packs(packs));
  // Parts first: one that becomes a set meanwhile is seen as such.
  VARVE_ASSIGN(const std::vector<PartName> parts, list_parts(store));
  for (const PartName& part : parts) {
    if (progress.cancelled()) return Status::cancelled();
    search.look_at_record(part.to_string(), read_part(store, part));
  }
  const Catalog catalog(store);
  VARVE_ASSIGN(const std::vector<SetName> sets, catalog.sets());
  for (const SetName& name : sets) {
    if (progress.cancelled()) return Status::cancelled();
    search.look_at_record(name.to_string(), catalog.read(name));
  }
  return std::move(search).take();
}

}  // namespace varve
