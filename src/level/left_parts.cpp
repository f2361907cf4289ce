#include "level/left_parts.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "comm/agreement.h"
#include "comm/gather.h"
#include "core/bytes.h"
#include "core/guarded.h"
#include "level/stored_image.h"
#include "store/catalog.h"
#include "store/commit.h"

namespace varve {

namespace {
/// In the order in which they were made, of a step.
using CheckpointKey = std::tuple<uint64_t, uint64_t, UniqueId>;  // step, number, run

/// What a node has of a checkpoint: a set, or the parts of one.
struct NodeShare {
  uint64_t rank_count = 0, run_ranks = 0;
  int64_t made_s = 0;
  std::optional<PartName> first_part{};  ///< none: it is a set
};
using NodeShares = std::map<CheckpointKey, NodeShare>;

CheckpointKey key_of(const SetRecord& record) { return {record.name.step, record.number, record.run}; }

/// The first parts of the job's sets of which all of the node's parts are there.
Result<std::vector<PartName>> list_first_parts(const Store& store, Clock& clock, const std::string& job) {
  PatientReads reads(store, clock);
  VARVE_ASSIGN(const ListedParts parts, reads([&] { return list_all_parts(store); }));
  std::vector<PartName> firsts;
  for (const PartName& first : parts.delivered) {
    if (first.set.job == job && first.ordinal == 0 && parts.has_all_of(first)) firsts.push_back(first);
  }
  return firsts;
}

/// Of these parts, whose set is not there, but perhaps an older one of its step; and of the job's sets.
Result<NodeShares> shares_of_node(const Store& store, Clock& clock, const std::string& job,
                                  const std::vector<PartName>& first_parts) {
  PatientReads reads(store, clock);
  NodeShares shares;
  for (const PartName& first : first_parts) {
    NodeShare share{.first_part = first};
    std::set<CheckpointKey> keys;
    PartName part = first;
    for (part.ordinal = 0; part.ordinal < first.count; ++part.ordinal) {
      const Result<SetRecord> record = reads([&] { return read_part(store, part); });
      if (!record.ok()) break;
      keys.insert(key_of(*record));
      share.rank_count += record->rank_count;
      share.run_ranks = record->run_ranks;
      share.made_s = std::max(share.made_s, record->created_s);
    }
    if (part.ordinal == first.count && keys.size() == 1) shares.emplace(*keys.begin(), std::move(share));
  }
  VARVE_ASSIGN(const std::vector<uint64_t> steps, reads([&] { return Catalog(store).steps(job); }));
  for (const uint64_t step : steps) {
    const Result<SetRecord> record = reads([&] { return Catalog(store).read({job, step}); });
    if (record.status().code() == StatusCode::not_found) continue;  // dropped just now
    if (!record.ok()) {
      // A damaged one was about to be replaced by whoever has published parts. What is newer than one that cannot be
      // read now, nobody knows.
      if (record.status().code() != StatusCode::corrupt)
        std::erase_if(shares, [&](const auto& share) { return std::get<0>(share.first) == step; });
      continue;
    }
    // Parts of it, or of what was made before it, take no place any more. A job that begins anew counts from 1 again.
    std::erase_if(shares, [&](const auto& share) {
      const auto& [of_step, number, run] = share.first;
      return of_step == step && (number < record->number || (number == record->number && run == record->run));
    });
    shares[key_of(*record)] = {
        .rank_count = record->rank_count, .run_ranks = record->run_ranks, .made_s = record->created_s};
  }
  return shares;
}

ByteVector encode(const NodeShares& shares) {
  ByteVector told;
  ByteWriter out(told);
  for (const auto& [key, share] : shares) {
    const auto& [step, number, run] = key;
    out.le64(step);
    out.le64(number);
    out.bytes(run.bytes);
    out.le64(share.rank_count);
    out.le64(share.run_ranks);
    out.le64(static_cast<uint64_t>(share.made_s));
    out.u8(share.first_part ? 1 : 0);
  }
  return told;
}

/// What the nodes have of a checkpoint together.
struct AllShares {
  uint64_t nodes = 0, in_parts = 0, rank_count = 0, run_ranks = 0;
  int64_t made_s = 0;
  bool has_all_ranks() const { return rank_count == run_ranks; }
};

Status add(ByteSpan told, std::map<CheckpointKey, AllShares>& all) {
  ByteReader in(told);
  while (!in.at_end()) {
    VARVE_ASSIGN(const uint64_t step, in.le64());
    VARVE_ASSIGN(const uint64_t number, in.le64());
    VARVE_ASSIGN(const UniqueId run, UniqueId::read(in));
    AllShares& shares = all[{step, number, run}];
    ++shares.nodes;
    VARVE_ASSIGN(const uint64_t rank_count, in.le64());
    shares.rank_count += rank_count;
    VARVE_ASSIGN(shares.run_ranks, in.le64());
    VARVE_ASSIGN(const uint64_t made_s, in.le64());
    shares.made_s = std::max(shares.made_s, static_cast<int64_t>(made_s));
    VARVE_ASSIGN(const uint8_t in_parts, in.u8());
    shares.in_parts += in_parts;
  }
  return {};
}

Status make_set(const Store& store, Clock& clock, const NodeShare& share) {
  if (!share.first_part) return {};
  const PartName& first = *share.first_part;
  PatientReads reads(store, clock);
  return reads([&] { return complete_set(store, first.run, first.set, first.count, IfExists::replace).status(); });
}

/// What the store of this rank's node has, if it speaks for it; nothing where no node has parts. Collective.
Result<NodeShares> shares_of_own_node(LevelWorld& world, const StoreAccess& own) {
  const bool speaks = own.speaks() && !own.is_away() && own.opened() != nullptr;
  Result<std::vector<PartName>> parts = std::vector<PartName>();
  if (speaks) parts = run_guarded([&] { return list_first_parts(*own.opened(), world.clock, world.job); });
  std::array<uint64_t, 1> any = {parts.ok() && parts->empty() ? uint64_t{0} : uint64_t{1}};
  VARVE_TRY(world.ranks.all_max(any));
  if (any[0] == 0 || !speaks) return NodeShares();
  Result<NodeShares> shares = parts.status();
  if (parts.ok()) {
    shares = run_guarded([&] { return shares_of_node(*own.opened(), world.clock, world.job, *parts); });
  }
  if (shares.ok()) return shares;
  // Without those of one node nothing is known to be on all.
  world.warnings.add(shares.status().with_context("what was left of checkpoints cannot be listed"));
  return NodeShares();
}
}  // namespace

Status complete_left_parts(const Levels& levels) {
  LevelWorld& world = levels.world();
  if (!world.has_node_level) return {};
  const StoreAccess& own = levels.nearest().access();
  VARVE_ASSIGN(const NodeShares mine, shares_of_own_node(world, own));
  VARVE_ASSIGN(const std::vector<Told> told, gather_told(world.ranks, encode(mine)));
  std::map<CheckpointKey, AllShares> all;
  for (const Told& of_rank : told) VARVE_TRY(add(of_rank.bytes, all));
  // Of a step, what was made last; numbers may be equal where a job has begun anew.
  std::map<uint64_t, CheckpointKey> last;
  for (const auto& [key, shares] : all) {
    const auto& [step, number, run] = key;
    if (run == UniqueId() || !shares.has_all_ranks()) continue;
    const auto [at, is_first] = last.emplace(step, key);
    if (!is_first && std::pair(std::get<1>(at->second), all.at(at->second).made_s) < std::pair(number, shares.made_s))
      at->second = key;
  }
  for (const auto& [step, key] : last) {
    const AllShares& shares = all.at(key);
    if (shares.in_parts == 0) continue;  // it is a set on all nodes
    // The old one is going to be replaced, node by node.
    world.sets.note_incomplete(step);
    Status made;
    const auto share = mine.find(key);
    if (share != mine.end()) made = run_guarded([&] { return make_set(*own.opened(), world.clock, share->second); });
    const Status everywhere = agree(world.ranks, made);
    if (everywhere.ok() && shares.nodes == world.seat.nodes.size()) world.sets.note_complete(step);
    if (!made.ok())
      world.warnings.add(made.with_context("a checkpoint of which all nodes have their parts could not be completed"));
  }
  return {};
}

Status remove_left_parts(const Store& store, const SetName& name) {
  VARVE_ASSIGN(const std::vector<PartName> parts, list_parts(store));
  bool any = false;
  for (const PartName& part : parts) {
    if (part.set != name) continue;
    VARVE_TRY(remove_part(store, part));
    any = true;
  }
  return any ? store.backend().settle(parts_path(store)) : Status();
}

}  // namespace varve
