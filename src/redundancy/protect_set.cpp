#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "comm/agreement.h"
#include "redundancy/failure_groups.h"
#include "redundancy/leader_group.h"
#include "redundancy/node_folder.h"
#include "redundancy/node_label.h"
#include "redundancy/node_redundancy.h"
#include "redundancy/protected_files.h"
#include "redundancy/redundancy.h"

namespace varve {

namespace {
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
    VARVE_TRY(agree(folder_ ? folder_->prepare() : Status()));
    VARVE_TRY(make());
    return report();
  }

 private:
  Status agree(const Status& mine) { return agree_among_nodes(leaders_, place_.node, mine); }

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

  Result<ProtectedMember> describe_own() const {
    if (!folder_) return ProtectedMember();
    FileSystem& files = *folder_;
    VARVE_ASSIGN(const std::unique_ptr<Store> store, Store::open(*place_.fs, place_.path));
    VARVE_ASSIGN(std::vector<std::string> names, protected_files_of(*store, set_));
    return describe_member(files, folder_->path(), place_.node, std::move(names), redundancy_);
  }

  /// What all members of the group have makes its description.
  Status describe() {
    const Result<ProtectedMember> own = describe_own();
    VARVE_TRY(agree(own.status()));
    Status status;
    if (group_->takes_part()) {
      const Result<std::vector<ByteVector>> members = group_->gather(folder_ ? encode_member(*own) : ByteVector());
      status = members.ok() && folder_ ? create_group(*members) : members.status();
    }
    return agree(status);
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
    if (folder_) {
      const Result<ParityHeader> header = read_member_header(*folder_, folder_->path());
      another = header.ok() ? header->group.description() != parity_->description()
                            : header.status().code() != StatusCode::not_found;
    }
    std::array<uint64_t, 1> any = {another ? uint64_t{1} : uint64_t{0}};
    VARVE_TRY(leaders_.all_max(any));
    if (any[0] == 0) return {};
    return agree(drop_redundancy(place_, set_));
  }

  Status make() {
    std::optional<MemberReader> reader;
    if (folder_) reader.emplace(*folder_, folder_->path(), parity_->member(group_->position()).files);
    const auto exchange = group_->make_exchange(reader ? &*reader : nullptr);
    Status status = group_->takes_part() ? exchange->prepare() : Status();
    VARVE_TRY(agree(status));
    if (group_->takes_part()) {
      if (folder_) status = make_parity(*folder_, folder_->path(), *parity_, group_->position(), *exchange);
      const Status finished = exchange->finish();
      if (status.ok()) status = finished;
    }
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
  mutable std::optional<NodeFolder> folder_;  ///< none for a rank without a store
  std::unique_ptr<LeaderGroup> group_;
  uint32_t group_ordinal_ = 0;
  std::optional<ParityGroup> parity_;
  ProtectionReport report_;
};
}  // namespace

Result<ProtectionReport> protect_set(Communicator& leaders, const NodePlace& place, const SetName& set,
                                     const Redundancy& redundancy) {
  return SetProtector(leaders, place, set, redundancy).run();
}

}  // namespace varve
