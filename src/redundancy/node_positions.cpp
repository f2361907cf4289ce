#include "redundancy/node_positions.h"

#include <fmt/format.h>

#include <algorithm>

#include "redundancy/node_folder.h"

namespace varve {

namespace {
/// Names in a folder; none if it is not there.
Result<std::vector<std::string>> names_in(FileSystem& fs, const std::string& path) {
  const Result<std::vector<DirectoryEntry>> entries = fs.list(path);
  if (!entries.ok() && entries.status().code() == StatusCode::not_found) return std::vector<std::string>();
  VARVE_TRY(entries.status());
  std::vector<std::string> names;
  for (const DirectoryEntry& entry : *entries) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  return names;
}

bool protects(const ProtectedMember& member, const std::string& name, const Score* sum) {
  const auto file = std::lower_bound(member.files.begin(), member.files.end(), name,
                                     [](const ProtectedFile& each, const std::string& key) { return each.name < key; });
  return file != member.files.end() && file->name == name && (sum == nullptr || file->sum == *sum);
}

/// The member that protects a file of that name; and contents, unless null.
std::optional<GroupPosition> find_protector(std::span<const ParityGroup> groups, const std::string& name,
                                            const ByteVector* contents) {
  for (uint32_t group = 0; group < groups.size(); ++group) {
    Score sum;
    if (contents != nullptr) {
      const Result<ScoreFunction> function =
          ScoreFunction::create(groups[group].group().algorithm, sizeof(Score::bytes));
      if (!function.ok()) continue;
      sum = (*function)(*contents);
    }
    for (uint32_t position = 0; position < groups[group].members(); ++position) {
      if (protects(groups[group].member(position), name, contents == nullptr ? nullptr : &sum)) {
        return GroupPosition{group, position};
      }
    }
  }
  return std::nullopt;
}
/// Whether a set has a redundancy file there. What a rebuild that was stopped has left is none.
Result<bool> has_redundancy(FileSystem& fs, const std::string& path) {
  VARVE_ASSIGN(const std::vector<std::string> sets, names_in(fs, NodeFolder::redundancy_path(path)));
  for (const std::string& set : sets) {
    const std::string folder = join_path(NodeFolder::redundancy_path(path), set);
    const Result<FileStatus> file = fs.stat(join_path(folder, kParityFileName));
    if (file.ok()) return true;
    if (file.status().code() != StatusCode::not_found) return file.status();
  }
  return false;
}
}  // namespace

ByteVector NodeClaim::encode() const {
  ByteVector bytes;
  ByteWriter out(bytes);
  out.u8(static_cast<uint8_t>(found));
  out.le32(at.group);
  out.le32(at.position);
  out.u8(has_store ? 1 : 0);
  out.u8(is_free ? 1 : 0);
  out.text(node);
  return bytes;
}

Result<NodeClaim> NodeClaim::decode(ByteSpan bytes, std::span<const ParityGroup> groups) {
  NodeClaim claim;
  ByteReader in(bytes);
  VARVE_ASSIGN(const uint8_t found, in.u8());
  VARVE_ASSIGN(claim.at.group, in.le32());
  VARVE_ASSIGN(claim.at.position, in.le32());
  VARVE_ASSIGN(const uint8_t has_store, in.u8());
  VARVE_ASSIGN(const uint8_t is_free, in.u8());
  VARVE_ASSIGN(const std::string_view node, in.text());
  claim.found = static_cast<Found>(found);
  claim.has_store = has_store == 1;
  claim.is_free = is_free == 1;
  claim.node = node;
  const bool exists = claim.at.group < groups.size() && claim.at.position < groups[claim.at.group].members();
  if (found > static_cast<uint8_t>(Found::by_redundancy_file) || (found > 0 && !exists)) {
    return Status::corrupt("what a node says of its place makes no sense", claim.node);
  }
  return claim;
}

Result<NodeClaim> find_claim(FileSystem& fs, const std::string& path, std::span<const ParityGroup> groups,
                             std::optional<GroupPosition> own) {
  NodeClaim claim;
  claim.has_store = true;
  VARVE_ASSIGN(const bool has_nothing, NodeFolder::has_nothing(fs, path));
  VARVE_ASSIGN(const bool protects, has_redundancy(fs, path));
  claim.is_free = has_nothing && !protects;
  VARVE_ASSIGN(const std::vector<std::string> arenas, names_in(fs, join_path(path, "arenas")));
  const auto take = [&](NodeClaim::Found found, const std::optional<GroupPosition>& at) {
    if (claim.found != NodeClaim::Found::by_nothing || !at) return;
    claim.found = found;
    claim.at = *at;
  };
  take(NodeClaim::Found::by_redundancy_file, own);
  const Result<ByteVector> header = read_file(fs, join_path(path, "varve.store"), NodeFolder::kHeaderBytesMax);
  if (header.ok()) {
    take(NodeClaim::Found::by_header, find_protector(groups, std::string(NodeFolder::kHeaderName), &*header));
  }
  for (const std::string& arena : arenas) {
    if (claim.found != NodeClaim::Found::by_nothing) break;
    take(NodeClaim::Found::by_arena, find_protector(groups, arena, nullptr));
  }
  return claim;
}

namespace {
/// Positions and the ranks that have got one.
class Assignment {
 public:
  Assignment(std::span<const ParityGroup> groups, std::span<const NodeClaim> claims)
      : groups_(groups), claims_(claims), taken_(claims.size(), false) {
    for (const ParityGroup& group : groups) ranks_.emplace_back(group.members());
  }

  /// Everyone who is known by this much gets the position, unless somebody has it.
  void give_claimed(NodeClaim::Found found) {
    for (uint32_t rank = 0; rank < claims_.size(); ++rank) {
      if (claims_[rank].found == found) give(claims_[rank].at, rank);
    }
  }
  void give_by_name() {
    for (const GroupPosition& at : open()) {
      for (uint32_t rank = 0; rank < claims_.size(); ++rank) {
        if (is_free(rank) && claims_[rank].node == groups_[at.group].member(at.position).node) give(at, rank);
      }
    }
  }
  void give_in_order() {
    uint32_t rank = 0;
    for (const GroupPosition& at : open()) {
      while (rank < claims_.size() && !is_free(rank)) ++rank;
      if (rank < claims_.size()) give(at, rank);
    }
  }
  Result<std::vector<std::vector<uint32_t>>> finish() const {
    std::vector<std::vector<uint32_t>> ranks;
    for (uint32_t group = 0; group < ranks_.size(); ++group) {
      ranks.emplace_back();
      for (const std::optional<uint32_t>& rank : ranks_[group]) ranks.back().push_back(rank.value_or(0));
    }
    const std::vector<GroupPosition> left = open();
    if (left.empty()) return ranks;
    const ProtectedMember& member = groups_[left.front().group].member(left.front().position);
    for (uint32_t rank = 0; rank < claims_.size(); ++rank) {
      if (taken_[rank] || !claims_[rank].has_store) continue;
      return Status::already_exists(
          fmt::format("node {} cannot take the place of node {}, as its store has something else", claims_[rank].node,
                      member.node),
          groups_[left.front().group].group().label, "give it an empty folder if that is no longer needed");
    }
    return Status::not_found(
        fmt::format("there are fewer nodes than protected the set: nobody is there for node {}", member.node),
        groups_[left.front().group].group().label, "start as many nodes as it had");
  }

 private:
  bool is_free(uint32_t rank) const { return !taken_[rank] && claims_[rank].has_store && claims_[rank].is_free; }
  void give(const GroupPosition& at, uint32_t rank) {
    std::optional<uint32_t>& place = ranks_[at.group][at.position];
    if (place || taken_[rank]) return;
    place = rank;
    taken_[rank] = true;
  }
  /// What nobody has, in the order in which nodes were dealt out to groups.
  std::vector<GroupPosition> open() const {
    std::vector<GroupPosition> places;
    for (uint32_t group = 0; group < ranks_.size(); ++group) {
      for (uint32_t position = 0; position < ranks_[group].size(); ++position) {
        if (!ranks_[group][position]) places.push_back({group, position});
      }
    }
    std::stable_sort(places.begin(), places.end(),
                     [](const GroupPosition& a, const GroupPosition& b) { return a.position < b.position; });
    return places;
  }

  std::span<const ParityGroup> groups_;
  std::span<const NodeClaim> claims_;
  std::vector<std::vector<std::optional<uint32_t>>> ranks_;
  std::vector<bool> taken_;
};
}  // namespace

Result<std::vector<std::vector<uint32_t>>> assign_positions(std::span<const ParityGroup> groups,
                                                            std::span<const NodeClaim> claims) {
  Assignment assignment(groups, claims);
  assignment.give_claimed(NodeClaim::Found::by_redundancy_file);
  assignment.give_claimed(NodeClaim::Found::by_header);
  assignment.give_claimed(NodeClaim::Found::by_arena);
  assignment.give_by_name();
  assignment.give_in_order();
  return assignment.finish();
}

}  // namespace varve
