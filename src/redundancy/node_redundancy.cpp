#include "redundancy/node_redundancy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "comm/agreement.h"
#include "core/guarded.h"
#include "core/quantity.h"
#include "redundancy/member_files.h"
#include "redundancy/node_exchange.h"
#include "redundancy/node_folder.h"
#include "redundancy/node_positions.h"
#include "redundancy/parity_group.h"
#include "redundancy/rebuild.h"
#include "store/catalog.h"
#include "store/commit.h"

namespace varve {

namespace {
Result<std::vector<DirectoryEntry>> list_if_there(FileSystem& fs, const std::string& path) {
  Result<std::vector<DirectoryEntry>> entries = fs.list(path);
  if (entries.status().code() == StatusCode::not_found) return std::vector<DirectoryEntry>();
  return entries;
}

Status remove_if_there(FileSystem& fs, const std::string& path) {
  const Status removed = fs.remove(path);
  return removed.code() == StatusCode::not_found ? Status() : removed;
}

Status remove_unfinished(FileSystem& fs, const std::string& folder) {
  VARVE_ASSIGN(const std::vector<DirectoryEntry> entries, list_if_there(fs, folder));
  for (const DirectoryEntry& entry : entries) {
    if (!entry.is_directory && entry.name.ends_with(kUnfinishedSuffix)) {
      VARVE_TRY(remove_if_there(fs, join_path(folder, entry.name)));
    }
  }
  return {};
}
}  // namespace

Result<std::vector<SetName>> list_redundancy(const NodePlace& place, const std::string& job) {
  std::vector<SetName> sets;
  if (place.path.empty()) return sets;
  VARVE_ASSIGN(const std::vector<DirectoryEntry> entries,
               list_if_there(*place.fs, NodeFolder::redundancy_path(place.path)));
  for (const DirectoryEntry& entry : entries) {
    std::optional<SetName> set = parse_set_name(entry.name);
    if (set && entry.is_directory && (job.empty() || set->job == job)) sets.push_back(std::move(*set));
  }
  return sets;
}

Result<std::vector<SetName>> unite_sets(Communicator& leaders, const std::vector<SetName>& mine) {
  ByteVector told;
  ByteWriter out(told);
  for (const SetName& set : mine) out.text(set.key());
  VARVE_ASSIGN(const std::vector<ByteVector> all, leaders.all_gather(told));
  std::set<SetName> united;
  for (const ByteVector& each : all) {
    ByteReader in(each);
    while (!in.at_end()) {
      VARVE_ASSIGN(const std::string_view name, in.text());
      std::optional<SetName> set = parse_set_name(name);
      if (!set) return Status::corrupt("a node tells of a set whose name is none", std::string(name));
      united.insert(std::move(*set));
    }
  }
  std::vector<SetName> sets(united.begin(), united.end());
  std::stable_sort(sets.begin(), sets.end(), [](const SetName& a, const SetName& b) { return a.step > b.step; });
  return sets;
}

namespace {
/// A rebuild of which nothing was written for so long is not at work any more, whoever's it was.
constexpr int64_t kRebuildSilenceSeconds = 3600;

/// Whether somebody may be at work with unfinished files of the folder. All times are the file system's.
Result<bool> may_be_at_work(FileSystem& fs, const std::string& folder) {
  VARVE_ASSIGN(const std::vector<DirectoryEntry> entries, list_if_there(fs, folder));
  VARVE_TRY(fs.touch(parent_path(folder)));
  VARVE_ASSIGN(const FileStatus now, fs.stat(parent_path(folder)));
  for (const DirectoryEntry& entry : entries) {
    if (entry.is_directory || !entry.name.ends_with(kUnfinishedSuffix)) continue;
    const Result<FileStatus> status = fs.stat(join_path(folder, entry.name));
    if (status.ok() && (now.modified_ns - status->modified_ns) / 1'000'000'000 < kRebuildSilenceSeconds) return true;
  }
  return false;
}
}  // namespace

Status tidy_redundancy(const NodePlace& place, const std::string& job) {
  FileSystem& fs = *place.fs;
  VARVE_ASSIGN(const std::vector<SetName> sets, list_redundancy(place, ""));
  for (const SetName& set : sets) {
    const std::string folder = NodeFolder::set_path(place.path, set);
    if (!job.empty() && set.job != job) {
      VARVE_ASSIGN(const bool at_work, may_be_at_work(fs, folder));
      if (at_work) continue;
    }
    VARVE_TRY(remove_unfinished(fs, folder));
    fs.remove_directory(folder).ignore("it is in use");
  }
  // A folder without this file is no store: what a rebuild began to make of it.
  if (fs.stat(join_path(place.path, "varve.store")).status().code() != StatusCode::not_found) return {};
  const Status removed = fs.remove_directory(NodeFolder::redundancy_path(place.path));
  if (!removed.ok() && removed.code() != StatusCode::not_found) return {};  // another job's, which is rebuilding it
  for (const std::string_view folder : kStoreFolders) {
    fs.remove_directory(join_path(place.path, folder)).ignore("not there, or something is in it");
  }
  // Unless it has come into being just now.
  if (!fs.stat(join_path(place.path, "varve.store")).ok()) return {};
  for (const std::string_view folder : kStoreFolders) VARVE_TRY(fs.create_directory(join_path(place.path, folder)));
  return {};
}

Status drop_redundancy(const NodePlace& place, const SetName& set) {
  if (place.path.empty()) return {};
  FileSystem& fs = *place.fs;
  const std::string folder = NodeFolder::set_path(place.path, set);
  VARVE_TRY(remove_unfinished(fs, folder));
  VARVE_TRY(remove_if_there(fs, join_path(folder, kParityFileName)));
  const Status synced = fs.sync_directory(folder);
  if (synced.code() == StatusCode::not_found) return {};
  VARVE_TRY(synced);
  fs.remove_directory(folder).ignore("somebody else's files are in it");
  return fs.sync_directory(NodeFolder::redundancy_path(place.path));
}

namespace {
/// What a node says of a set, or all nodes together.
struct SetOnNode {
  static constexpr size_t kEncodedBytes = 9;
  bool has_parity = false, has_record = false, is_left_behind = false;
  uint64_t number = 0;  ///< SetRecord::number; 0: not known
};

Result<ByteVector> describe_sets(const NodePlace& place, const std::vector<SetName>& sets,
                                 const std::function<bool(uint64_t)>& is_left_behind) {
  ByteVector told;
  if (place.path.empty() || sets.empty()) return told;
  const Result<std::unique_ptr<Store>> store = Store::open(*place.fs, place.path);
  ByteWriter out(told);
  for (const SetName& set : sets) {
    NodeFolder folder(*place.fs, place.path, set);
    uint8_t bits = 0;
    for (const std::string_view name : {kParityFileName, NodeFolder::kRecordName}) {
      const Result<FileStatus> status = folder.stat(join_path(folder.path(), name));
      if (!status.ok() && status.status().code() != StatusCode::not_found) return status.status();
      bits = static_cast<uint8_t>(bits << 1 | (status.ok() ? 1 : 0));
    }
    const Result<SetRecord> record = store.ok() ? Catalog(**store).read(set) : store.status();
    bits = static_cast<uint8_t>(bits << 1 | (is_left_behind && is_left_behind(set.step) ? 1 : 0));
    out.u8(bits);
    out.le64(record.ok() ? record->number : 0);
  }
  return told;
}

/// Of each set, what is so on all nodes; of a record, and of what is left behind, on any.
Result<std::vector<SetOnNode>> unite_told(size_t set_count, const std::vector<ByteVector>& told) {
  std::vector<SetOnNode> united(set_count, {.has_parity = true});
  for (const ByteVector& each : told) {
    if (each.size() != set_count * SetOnNode::kEncodedBytes) continue;  // no store
    ByteReader in(each);
    for (SetOnNode& set : united) {
      VARVE_ASSIGN(const uint8_t bits, in.u8());
      VARVE_ASSIGN(const uint64_t number, in.le64());
      set.has_parity = set.has_parity && (bits & 4) != 0;
      set.has_record = set.has_record || (bits & 2) != 0;
      set.is_left_behind = set.is_left_behind || (bits & 1) != 0;
      set.number = std::max(set.number, number);
    }
  }
  return united;
}

/// Which sets give their redundancy up, of all that there are.
std::vector<SetName> choose_dropped(const std::vector<SetName>& sets, const std::vector<SetOnNode>& told,
                                    uint64_t keep) {
  std::vector<SetName> dropped;
  for (size_t i = 0; i < sets.size(); ++i) {
    const SetAge age{sets[i].step, told[i].number};
    uint64_t newer = 0;
    for (size_t other = 0; other < sets.size(); ++other) {
      const bool counts = told[other].has_parity && told[other].has_record && !told[other].is_left_behind;
      if (counts && SetAge{sets[other].step, told[other].number}.is_newer_than(age)) ++newer;
    }
    if (newer >= keep || !told[i].has_record) dropped.push_back(sets[i]);
  }
  return dropped;
}
}  // namespace

Result<std::vector<SetName>> retain_redundancy(Communicator& leaders, const NodePlace& place, const std::string& job,
                                               uint64_t keep, const std::function<bool(uint64_t)>& is_left_behind) {
  const Result<std::vector<SetName>> mine = list_redundancy(place, job);
  VARVE_TRY(agree_among_nodes(leaders, place.node, mine.status()));
  VARVE_ASSIGN(const std::vector<SetName> sets, unite_sets(leaders, *mine));
  const Result<ByteVector> described = describe_sets(place, sets, is_left_behind);
  VARVE_TRY(agree_among_nodes(leaders, place.node, described.status()));
  VARVE_ASSIGN(const std::vector<ByteVector> told, leaders.all_gather(*described));
  VARVE_ASSIGN(const std::vector<SetOnNode> united, unite_told(sets.size(), told));
  const std::vector<SetName> dropped = choose_dropped(sets, united, keep);
  Status status;
  for (const SetName& set : dropped) {
    const Status done = drop_redundancy(place, set);
    if (status.ok()) status = done;
  }
  VARVE_TRY(agree_among_nodes(leaders, place.node, status));
  return dropped;
}

namespace {
std::string advice(size_t node_count) {
  if (node_count < 2) return "use two nodes or more, or no redundancy";
  return fmt::format("use more nodes, or xor:{}, or partner", node_count);
}
}  // namespace

Result<FailureGroups> plan_failure_groups(std::span<const std::string> node_of_rank, const Redundancy& redundancy) {
  FailureGroups plan;
  std::map<std::string, uint32_t> ordinals;
  for (const std::string& node : node_of_rank) {
    const auto [found, is_new] = ordinals.emplace(node, static_cast<uint32_t>(plan.nodes.size()));
    if (is_new) plan.nodes.push_back(node);
    plan.node_of_rank.push_back(found->second);
  }
  const auto node_count = static_cast<uint32_t>(plan.nodes.size());
  const uint32_t group_count = node_count / redundancy.nodes_min();
  if (group_count == 0) {
    return Status::invalid_argument(
        fmt::format("this redundancy needs {} nodes, and the job has {}", redundancy.nodes_min(), node_count),
        redundancy.text(), advice(node_count));
  }
  // In turns: neighbours are in different groups, and what is left over goes to the first ones.
  plan.groups.resize(group_count);
  for (uint32_t node = 0; node < node_count; ++node) {
    std::vector<uint32_t>& members = plan.groups[node % group_count].nodes;
    plan.place_of_node.push_back({node % group_count, static_cast<uint32_t>(members.size())});
    members.push_back(node);
  }
  return plan;
}

namespace {
/// A rebuild that finds that something is damaged which looked whole, or is gone, and a rebuild or a protection that a
/// prune took for dead, are tried again: so often in all.
constexpr int kAttemptsMax = 3;

/// One node's share in protecting a set.
class SetProtector {
 public:
  SetProtector(Communicator& leaders, const NodePlace& place, const SetName& set, const Redundancy& redundancy)
      : leaders_(leaders), place_(place), set_(set), redundancy_(redundancy) {
    if (!place.path.empty()) folder_.emplace(*place.fs, place.path, set);
  }

  Result<ProtectionReport> run() {
    VARVE_TRY(plan_groups());
    VARVE_TRY(describe());
    VARVE_TRY(drop_another_protection());
    VARVE_TRY(agree(run_guarded([this] { return folder_ ? folder_->prepare() : Status(); })));
    VARVE_TRY(make());
    return report();
  }

 private:
  /// What fails once a prune has taken this one for dead, may fail for that.
  Status agree(const Status& mine) {
    return agree_among_nodes(leaders_, place_.node, mine.ok() || check_lease().ok() ? mine : check_lease());
  }

  /// Finds this node's group; the same plan on all.
  Status plan_groups() {
    VARVE_TRY(
        agree(folder_ && place_.node.empty() ? Status::invalid_argument("a node has no name", place_.path) : Status()));
    VARVE_ASSIGN(const std::vector<ByteVector> names,
                 leaders_.all_gather(as_bytes(folder_ ? std::string_view(place_.node) : std::string_view())));
    std::vector<std::string> nodes;
    std::vector<uint32_t> ranks;
    for (uint32_t rank = 0; rank < names.size(); ++rank) {
      if (names[rank].empty()) continue;
      nodes.emplace_back(as_text(names[rank]));
      ranks.push_back(rank);
    }
    VARVE_ASSIGN(const FailureGroups plan, plan_failure_groups(nodes, redundancy_));
    if (plan.nodes.size() != nodes.size()) {
      return Status::invalid_argument("two leaders of nodes give the same name", nodes.front(),
                                      "give each node a name of its own");
    }
    report_.group_count = static_cast<uint32_t>(plan.groups.size());
    report_.node_count = static_cast<uint32_t>(nodes.size());
    std::vector<uint32_t> members;
    const auto own = std::find(ranks.begin(), ranks.end(), leaders_.rank());
    if (own != ranks.end()) {
      group_ordinal_ = plan.place_of_node[static_cast<size_t>(own - ranks.begin())].group;
      for (const uint32_t node : plan.groups[group_ordinal_].nodes) members.push_back(ranks[node]);
    }
    VARVE_ASSIGN(group_, LeaderGroup::create(leaders_, std::move(members)));
    return {};
  }

  /// Who marks an arena from now on sees by the lease what goes on, or finds what this one has made; what is marked
  /// before is not relied on (COMMIT.md, "Protecting the sets of nodes").
  Result<ProtectedMember> describe_own() {
    if (!folder_) return ProtectedMember();
    VARVE_ASSIGN(store_, Store::open(*place_.fs, place_.path));
    VARVE_ASSIGN(const SetRecord record, Catalog(*store_).read(set_));
    VARVE_ASSIGN(lease_, WriterLease::acquire(*store_));
    VARVE_TRY(lease_->prepare_of_settled(record));
    VARVE_ASSIGN(const std::set<ArenaId> leaving, lease_->condemned());
    VARVE_ASSIGN(std::vector<std::string> names, protected_files_of(*store_, set_, leaving));
    return describe_member(*folder_, folder_->path(), place_.node, std::move(names), redundancy_);
  }

  /// A prune that took this one for dead may have looked for what protects arenas before it was there.
  Status check_lease() const {
    if (lease_ == nullptr || !lease_->lost()) return {};
    return Status::busy("a prune took this one for dead before the set was protected", set_.to_string());
  }

  /// What all members of the group have makes its description.
  Status describe() {
    const Result<ByteVector> own = run_guarded([this]() -> Result<ByteVector> {
      VARVE_ASSIGN(const ProtectedMember member, describe_own());
      return folder_ ? encode_member(member) : ByteVector();
    });
    VARVE_TRY(agree(own.status()));
    // Not guarded: the others of the group wait for it.
    Result<std::vector<ByteVector>> members = std::vector<ByteVector>();
    if (group_->takes_part()) members = group_->gather(*own);
    return agree(run_guarded([&]() -> Status {
      VARVE_TRY(members.status());
      return group_->takes_part() && folder_ ? create_group(*members) : Status();
    }));
  }
  Status create_group(const std::vector<ByteVector>& members) {
    const NodeLabel label{set_, group_ordinal_, report_.group_count};
    ProtectedGroup group{label.text(), redundancy_, ScoreFunction::preferred().algorithm(), {}};
    for (const ByteVector& encoded : members) {
      VARVE_ASSIGN(ProtectedMember member, decode_member(encoded, redundancy_.data_parts));
      group.members.push_back(std::move(member));
    }
    VARVE_ASSIGN(ParityGroup created, ParityGroup::create(std::move(group)));
    parity_.emplace(std::move(created));
    return {};
  }

  /// Redundancy files of two protections contradict each other: the other one goes on all nodes before this one begins.
  Status drop_another_protection() {
    bool another = false;
    VARVE_TRY(agree(run_guarded([&]() -> Status {
      if (!folder_) return {};
      const Result<ParityHeader> header = read_member_header(*folder_, folder_->path());
      another = header.ok() ? header->group.description() != parity_->description()
                            : header.status().code() != StatusCode::not_found;
      return {};
    })));
    std::array<uint64_t, 1> any = {another ? uint64_t{1} : uint64_t{0}};
    VARVE_TRY(leaders_.all_max(any));
    if (any[0] == 0) return {};
    return agree(run_guarded([this] { return drop_redundancy(place_, set_); }));
  }

  Status make() {
    std::optional<MemberReader> reader;
    std::unique_ptr<CommunicatorExchange> exchange;
    Status status = run_guarded([&] {
      if (folder_) reader.emplace(*folder_, folder_->path(), parity_->member(group_->position()).files);
      exchange = group_->make_exchange(reader ? &*reader : nullptr);
      return group_->takes_part() ? exchange->prepare() : Status();
    });
    VARVE_TRY(agree(status));
    if (group_->takes_part()) {
      if (folder_) {
        status = run_guarded(
            [&] { return make_parity(*folder_, folder_->path(), *parity_, group_->position(), *exchange); });
      }
      const Status finished = exchange->finish();
      if (status.ok()) status = finished;
    }
    VARVE_TRY(agree(check_lease()));  // before what others say, to whom this one could give nothing
    return agree(status);
  }

  Result<ProtectionReport> report() {
    ByteVector mine;
    ByteWriter out(mine);
    out.le64(folder_ ? parity_->member(group_->position()).stream_bytes() : 0);
    out.le64(folder_ ? parity_->parity_file_bytes(group_->position()) : 0);
    VARVE_ASSIGN(const std::vector<ByteVector> all, leaders_.all_gather(mine));
    for (const ByteVector& each : all) {
      ByteReader in(each);
      VARVE_ASSIGN(const uint64_t protected_bytes, in.le64());
      VARVE_ASSIGN(const uint64_t parity_bytes, in.le64());
      report_.protected_bytes += protected_bytes;
      report_.parity_bytes += parity_bytes;
    }
    return report_;
  }

  Communicator& leaders_;
  const NodePlace& place_;
  const SetName& set_;
  const Redundancy& redundancy_;
  std::optional<NodeFolder> folder_;  ///< none for a rank without a store
  std::unique_ptr<Store> store_;
  std::unique_ptr<WriterLease> lease_;
  std::unique_ptr<LeaderGroup> group_;
  uint32_t group_ordinal_ = 0;
  std::optional<ParityGroup> parity_;
  ProtectionReport report_;
};
}  // namespace

Result<ProtectionReport> protect_set(Communicator& leaders, const NodePlace& place, const SetName& set,
                                     const Redundancy& redundancy) {
  const auto attempt = [&] { return SetProtector(leaders, place, set, redundancy).run(); };
  Result<ProtectionReport> report = attempt();
  for (int attempts = 1; attempts < kAttemptsMax && report.status().code() == StatusCode::busy; ++attempts) {
    report = attempt();
  }
  return report;
}

namespace {
using KnownFiles = std::map<std::string, Score>;

/// One node's share in restoring one set.
class SetRestorer {
 public:
  SetRestorer(Communicator& leaders, const NodePlace& place, const SetName& set, const RestoreLostOptions& options,
              KnownFiles& known_whole)
      : leaders_(leaders), place_(place), set_(set), contents_(options.read_everything), known_whole_(known_whole) {
    if (!place.path.empty()) folder_.emplace(*place.fs, place.path, set);
  }

  /// The same outcome on all leaders; `rebuilt` gets a line for each node that lost something.
  Status run(std::vector<std::string>& rebuilt) {
    VARVE_TRY(learn_groups());
    VARVE_TRY(take_positions());
    for (int attempt = 1;; ++attempt) {
      VARVE_TRY(survey());
      VARVE_ASSIGN(const bool lost, anything_lost());
      if (!lost) return {};
      const Status status = rebuild(rebuilt);
      const bool is_over = !status.ok() && status.code() != StatusCode::busy && status.code() != StatusCode::corrupt;
      if (is_over || attempt == kAttemptsMax) return status;
      // What was found whole is kept only since the set is there: a prune may have removed it before that.
      if (status.ok()) contents_ = false;
      if (status.code() != StatusCode::corrupt) continue;
      // Something is not what it was, though it looked so.
      contents_ = true;
      known_whole_.clear();
      rebuilt.clear();
    }
  }
  /// As RestoredSet says.
  uint64_t nodes_missing() const { return nodes_missing_; }

 private:
  /// When a set was made. Numbers begin again when a job has no sets any more, and clocks may be set: both must say so.
  struct Made {
    uint64_t number = 0;  ///< SetRecord::number; 0: not known
    int64_t created_s = 0;
    bool is_before(const Made& other) const {
      return number != 0 && number < other.number && created_s <= other.created_s;
    }
  };

  Status agree(const Status& mine) { return agree_among_nodes(leaders_, place_.node, mine); }
  bool is_member() const { return group_->is_member(); }
  const ParityGroup& own_group() const { return groups_[own_at_->group]; }

  Status learn_groups();
  Made own_made() const;
  Result<std::vector<ByteVector>> gather_descriptions();
  Status keep_groups(const std::vector<ByteVector>& descriptions);
  Status take_positions();
  Status survey();
  Status check_conflict(const MemberSurvey& survey) const;
  Status make_plan(const std::vector<ByteVector>& surveys);
  Result<bool> anything_lost();
  Status rebuild(std::vector<std::string>& rebuilt);
  std::string say_what_was_rebuilt() const;
  std::set<std::string> source_nodes() const;

  Communicator& leaders_;
  const NodePlace& place_;
  const SetName& set_;
  bool contents_;
  KnownFiles& known_whole_;
  std::optional<NodeFolder> folder_;        ///< none for a rank without a store
  std::optional<ParityHeader> own_header_;  ///< what the redundancy file here says, if it can be read
  Made newest_;                             ///< of the sets of this name that nodes have, the newest
  std::vector<ParityGroup> groups_;         ///< by ordinal
  bool is_free_ = false;                    ///< the store here has nothing of its own
  std::optional<GroupPosition> own_at_;     ///< none for a rank that is in no group
  std::vector<std::string> group_nodes_;    ///< names of the nodes that are there now, by position
  std::unique_ptr<LeaderGroup> group_;
  std::optional<RebuildPlan> plan_;
  uint64_t nodes_missing_ = 0;
};

/// When the set in this node's store was made, if it has one.
SetRestorer::Made SetRestorer::own_made() const {
  const Result<std::unique_ptr<Store>> store = Store::open(*place_.fs, place_.path);
  if (!store.ok()) return {};
  const Result<SetRecord> record = Catalog(**store).read(set_);
  return record.ok() ? Made{record->number, record->created_s} : Made();
}

/// All descriptions that redundancy files of the set have, each once: first their hashes, since most nodes have the
/// same. A node that was away while the others made the step anew has one of the set that it has still, which was made
/// before: that is left out.
Result<std::vector<ByteVector>> SetRestorer::gather_descriptions() {
  ByteVector told;
  ByteWriter out(told);
  if (own_header_) {
    const Made made = own_made();
    out.le64(made.number);
    out.le64(static_cast<uint64_t>(made.created_s));
    out.bytes(ScoreFunction::preferred()(own_header_->group.description()).bytes);
  }
  VARVE_ASSIGN(const std::vector<ByteVector> all, leaders_.all_gather(told));
  std::map<ByteVector, Made> made;  // the newest of the sets that have a description of this hash
  std::vector<ByteVector> hashes(all.size());
  for (uint32_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    ByteReader in(all[rank]);
    VARVE_ASSIGN(const uint64_t number, in.le64());
    VARVE_ASSIGN(const uint64_t created_s, in.le64());
    VARVE_ASSIGN(const ByteSpan hash, in.bytes(in.remaining()));
    hashes[rank].assign(hash.begin(), hash.end());
    const Made told_of{number, static_cast<int64_t>(created_s)};
    for (Made* const newest : {&made[hashes[rank]], &newest_}) {
      if (newest->number < number) *newest = told_of;
    }
  }
  std::vector<ByteVector> descriptions;
  std::set<ByteVector> seen;
  for (uint32_t rank = 0; rank < hashes.size(); ++rank) {
    if (hashes[rank].empty() || !seen.insert(hashes[rank]).second) continue;
    if (made[hashes[rank]].is_before(newest_)) continue;
    const ByteSpan mine = rank == leaders_.rank() ? ByteSpan(own_header_->group.description()) : ByteSpan();
    VARVE_ASSIGN(ByteVector description, leaders_.broadcast(mine, rank));
    descriptions.push_back(std::move(description));
  }
  return descriptions;
}

/// Whether all that the group protects can be in a store.
bool has_protected_names(const ParityGroup& group) {
  for (uint32_t position = 0; position < group.members(); ++position) {
    for (const ProtectedFile& file : group.member(position).files) {
      if (!NodeFolder::is_protected_name(file.name)) return false;
    }
  }
  return true;
}

Status SetRestorer::keep_groups(const std::vector<ByteVector>& descriptions) {
  std::map<uint32_t, ParityGroup> groups;
  uint32_t count = 0;
  for (const ByteVector& description : descriptions) {
    Result<ParityGroup> group = ParityGroup::decode(description);
    if (!group.ok()) continue;
    const std::optional<NodeLabel> label = NodeLabel::parse(group->group().label);
    if (!label || label->set != set_ || !has_protected_names(*group)) continue;
    const bool another_plan = count != 0 && label->group_count != count;
    count = label->group_count;
    if (another_plan || !groups.emplace(label->group, std::move(*group)).second) {
      return Status::corrupt("redundancy files of this set contradict each other", set_.to_string(),
                             "remove those that are left over from another run");
    }
  }
  if (count == 0 || groups.size() != count) {
    return Status::not_found(fmt::format("no node has a redundancy file of {} of the {} failure groups of this set",
                                         count - groups.size(), count),
                             set_.to_string(), "take another level, or an older set");
  }
  for (auto& [ordinal, group] : groups) groups_.push_back(std::move(group));
  return {};
}

/// What was protected, from whatever redundancy files there are: the same on all leaders.
Status SetRestorer::learn_groups() {
  const Status read = run_guarded([this]() -> Status {
    if (!folder_) return {};
    Result<ParityHeader> header = read_member_header(*folder_, folder_->path());
    if (header.ok()) own_header_.emplace(std::move(*header));
    return {};
  });
  VARVE_TRY(agree(read));
  VARVE_ASSIGN(const std::vector<ByteVector> descriptions, gather_descriptions());
  return keep_groups(descriptions);
}

Status SetRestorer::take_positions() {
  Result<NodeClaim> claim = run_guarded([this]() -> Result<NodeClaim> {
    std::optional<GroupPosition> told;
    for (uint32_t group = 0; own_header_ && group < groups_.size(); ++group) {
      if (groups_[group].description() == own_header_->group.description()) told = {group, own_header_->position};
    }
    if (!folder_) return NodeClaim();
    folder_->note_header();
    return find_claim(*place_.fs, place_.path, groups_, told);
  });
  VARVE_TRY(agree(claim.status()));
  claim->node = place_.node;
  is_free_ = claim->is_free;
  VARVE_ASSIGN(const std::vector<ByteVector> encoded, leaders_.all_gather(claim->encode()));
  std::vector<NodeClaim> claims;
  for (const ByteVector& each : encoded) {
    VARVE_ASSIGN(NodeClaim decoded, NodeClaim::decode(each, groups_));
    claims.push_back(std::move(decoded));
  }
  uint64_t positions = 0;
  for (const ParityGroup& group : groups_) positions += group.members();
  const auto stores = static_cast<uint64_t>(
      std::count_if(claims.begin(), claims.end(), [](const NodeClaim& each) { return each.has_store; }));
  nodes_missing_ = positions - std::min(positions, stores);
  VARVE_ASSIGN(const std::vector<std::vector<uint32_t>> ranks, assign_positions(groups_, claims));
  std::vector<uint32_t> members;
  for (uint32_t group = 0; group < ranks.size(); ++group) {
    const auto own = std::find(ranks[group].begin(), ranks[group].end(), leaders_.rank());
    if (own == ranks[group].end()) continue;
    own_at_ = {group, static_cast<uint32_t>(own - ranks[group].begin())};
    members = ranks[group];
    for (const uint32_t rank : members) group_nodes_.push_back(claims[rank].node);
  }
  VARVE_ASSIGN(group_, LeaderGroup::create(leaders_, std::move(members)));
  return {};
}

/// What is there instead of something that is lost must not be lost for it: only what is broken is replaced.
Status SetRestorer::check_conflict(const MemberSurvey& survey) const {
  if (is_free_) return {};
  const std::vector<ProtectedFile>& files = own_group().member(own_at_->position).files;
  for (size_t i = 0; i < files.size(); ++i) {
    const bool is_header = files[i].name == NodeFolder::kHeaderName,
               is_record = files[i].name == NodeFolder::kRecordName;
    if (!survey.lost_files[i] || (!is_header && !is_record)) continue;
    const auto store = Store::open(*place_.fs, place_.path);
    if (store.status().code() == StatusCode::not_found || store.status().code() == StatusCode::corrupt) continue;
    VARVE_TRY(store.status());
    if (is_header) {
      return Status::already_exists("there is another store in the place of the one that was protected", place_.path,
                                    "give the node an empty folder if it is no longer needed");
    }
    const Result<SetRecord> other = Catalog(**store).read(set_);
    if (other.status().code() != StatusCode::not_found && other.status().code() != StatusCode::corrupt)
      VARVE_TRY(other.status());
    const bool is_older = other.ok() && Made{other->number, other->created_s}.is_before(newest_);
    if (other.ok() && !is_older) {
      return Status::already_exists("there is another set of this name in the place of the one that was protected",
                                    set_.to_string(), "drop it if it is no longer needed");
    }
  }
  return {};
}

Status SetRestorer::make_plan(const std::vector<ByteVector>& encoded) {
  std::vector<MemberSurvey> surveys;
  for (uint32_t position = 0; position < encoded.size(); ++position) {
    VARVE_ASSIGN(MemberSurvey survey, decode_survey(encoded[position], own_group(), position));
    surveys.push_back(std::move(survey));
  }
  VARVE_ASSIGN(RebuildPlan plan, RebuildPlan::create(own_group(), std::move(surveys)));
  plan_.emplace(std::move(plan));
  return {};
}

/// Looks at what is whole, and plans what has to be made. Fails on all if any group has lost too much.
Status SetRestorer::survey() {
  ByteVector own;
  VARVE_TRY(agree(run_guarded([&]() -> Status {
    if (!is_member()) return {};
    const SurveyOptions options{.contents = contents_, .known_whole = &known_whole_};
    const MemberSurvey survey = survey_member(*folder_, folder_->path(), own_group(), own_at_->position, options);
    own = encode_survey(survey);
    return check_conflict(survey);
  })));
  // Not guarded: the others of the group wait for it.
  Result<std::vector<ByteVector>> surveys = std::vector<ByteVector>();
  if (group_->takes_part()) surveys = group_->gather(own);
  const Status planned = run_guarded([&]() -> Status {
    VARVE_TRY(surveys.status());
    return group_->takes_part() && is_member() ? make_plan(*surveys) : Status();
  });
  // All members of a group say the same.
  return agree_among_nodes(leaders_, "", planned);
}

Result<bool> SetRestorer::anything_lost() {
  std::array<uint64_t, 1> lost = {is_member() && plan_->survey(own_at_->position).anything_lost() ? uint64_t{1} : 0};
  VARVE_TRY(leaders_.all_max(lost));
  return lost[0] != 0;
}

Status SetRestorer::rebuild(std::vector<std::string>& rebuilt) {
  const bool lost = is_member() && plan_->survey(own_at_->position).anything_lost();
  std::optional<MemberReader> reader;
  std::unique_ptr<CommunicatorExchange> exchange;
  Status status = run_guarded([&]() -> Status {
    if (is_member()) reader.emplace(*folder_, folder_->path(), own_group().member(own_at_->position).files);
    exchange = group_->make_exchange(reader ? &*reader : nullptr);
    if (lost) VARVE_TRY(folder_->prepare());
    return group_->takes_part() ? exchange->prepare() : Status();
  });
  VARVE_TRY(agree(status));
  if (group_->takes_part()) {
    if (is_member()) {
      status =
          run_guarded([&] { return varve::rebuild(*folder_, folder_->path(), *plan_, own_at_->position, *exchange); });
    }
    const Status finished = exchange->finish();
    if (status.ok()) status = finished;
  }
  VARVE_TRY(agree(status));
  VARVE_ASSIGN(const std::vector<ByteVector> lines,
               leaders_.all_gather(as_bytes(lost ? say_what_was_rebuilt() : std::string())));
  for (const ByteVector& line : lines) {
    if (!line.empty()) rebuilt.emplace_back(as_text(line));
  }
  return {};
}

std::set<std::string> SetRestorer::source_nodes() const {
  std::set<uint32_t> positions;
  for (const RebuildPlan::Task& task : plan_->tasks(own_at_->position)) {
    for (const uint32_t part : plan_->sources(task)) {
      const bool known = !plan_->is_parity(part) && plan_->data_range(task.stripe, part, task.block).bytes() == 0;
      if (!known) positions.insert(plan_->member_of(task.stripe, part));
    }
  }
  std::set<std::string> nodes;
  for (const uint32_t position : positions) nodes.insert(group_nodes_[position]);
  return nodes;
}

std::string SetRestorer::say_what_was_rebuilt() const {
  const ProtectedMember& member = own_group().member(own_at_->position);
  const MemberSurvey& survey = plan_->survey(own_at_->position);
  uint64_t count = survey.parity_lost ? 1 : 0;
  uint64_t bytes = survey.parity_lost ? own_group().parity_file_bytes(own_at_->position) : 0;
  for (size_t i = 0; i < member.files.size(); ++i) {
    count += survey.lost_files[i] ? 1 : 0;
    bytes += survey.lost_files[i] ? member.files[i].bytes : 0;
  }
  const std::string who = member.node == place_.node
                              ? fmt::format("node {} was rebuilt", place_.node)
                              : fmt::format("node {} was rebuilt in the place of node {}", place_.node, member.node);
  const std::set<std::string> sources = source_nodes();
  return fmt::format("{}: {} file{}, {}, from node{} {}", who, count, count == 1 ? "" : "s", format_size(bytes),
                     sources.size() == 1 ? "" : "s", fmt::join(sources, ", "));
}
}  // namespace

Result<std::vector<RestoredSet>> restore_lost(Communicator& leaders, const NodePlace& place,
                                              const RestoreLostOptions& options) {
  const auto tidy = [&options](const NodePlace& each) {
    return run_guarded([&] { return each.path.empty() ? Status() : tidy_redundancy(each, options.job); });
  };
  VARVE_TRY(agree_among_nodes(leaders, place.node, tidy(place)));
  const Result<std::vector<SetName>> mine = run_guarded([&] { return list_redundancy(place, options.job); });
  VARVE_TRY(agree_among_nodes(leaders, place.node, mine.status()));
  VARVE_ASSIGN(const std::vector<SetName> sets, unite_sets(leaders, *mine));
  std::vector<RestoredSet> restored;
  KnownFiles known_whole;
  for (const SetName& set : sets) {
    RestoredSet& outcome = restored.emplace_back(RestoredSet{set, {}, {}, 0});
    SetRestorer restorer(leaders, place, set, options, known_whole);
    outcome.status = restorer.run(outcome.rebuilt);
    outcome.nodes_missing = restorer.nodes_missing();
    // A set that cannot be restored is one thing, leaders that cannot talk another.
    VARVE_TRY(leaders.barrier());
  }
  // A node for which nothing could be rebuilt has an empty folder again, in which a store can be made.
  VARVE_TRY(agree_among_nodes(leaders, place.node, tidy(place)));
  return restored;
}

}  // namespace varve
