#include "redundancy/rebuild_plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace varve {

namespace {
/// Where the lost files of a member lie in its stream. Those of no bytes lie nowhere.
std::vector<ByteRange> find_lost_ranges(const ProtectedMember& member, const std::vector<bool>& lost_files) {
  std::vector<ByteRange> ranges;
  uint64_t begin = 0;
  for (size_t i = 0; i < member.files.size(); ++i) {
    const uint64_t end = begin + member.files[i].bytes;
    if (lost_files[i] && begin < end) ranges.push_back({begin, end});
    begin = end;
  }
  return ranges;
}

/// "all", or the names of what a member lost, at most a few.
std::string name_losses(const ProtectedMember& member, const MemberSurvey& survey) {
  constexpr size_t kNamesMax = 4;
  std::vector<std::string_view> names;
  for (size_t i = 0; i < member.files.size(); ++i) {
    if (survey.lost_files[i]) names.push_back(member.files[i].name);
  }
  if (survey.parity_lost && names.size() == member.files.size()) return "everything";
  if (survey.parity_lost) names.push_back(kParityFileName);
  const size_t more = names.size() - std::min(names.size(), kNamesMax);
  names.resize(names.size() - more);
  return fmt::format("{}{}", fmt::join(names, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}
}  // namespace

RebuildPlan::RebuildPlan(const ParityGroup& group, std::vector<MemberSurvey> surveys)
    : group_(&group), surveys_(std::move(surveys)) {
  for (uint32_t position = 0; position < group.members(); ++position) {
    lost_ranges_.push_back(find_lost_ranges(group.member(position), surveys_[position].lost_files));
  }
}

Result<RebuildPlan> RebuildPlan::create(const ParityGroup& group, std::vector<MemberSurvey> surveys) {
  if (surveys.size() != group.members()) return Status::internal("not all nodes of a failure group were looked at");
  for (uint32_t position = 0; position < group.members(); ++position) {
    if (surveys[position].lost_files.size() != group.member(position).files.size()) {
      return Status::internal("not all files of a node were looked at", group.name_of(position));
    }
  }
  RebuildPlan plan(group, std::move(surveys));
  VARVE_TRY(plan.check());
  for (uint32_t position = 0; position < group.members(); ++position) {
    plan.rounds_ = std::max<uint64_t>(plan.rounds_, plan.tasks(position).size());
  }
  return plan;
}

uint32_t RebuildPlan::member_of(uint32_t stripe, uint32_t part) const {
  const StripeGeometry& geometry = group_->geometry();
  return is_parity(part) ? geometry.parity_member(stripe, part - geometry.data_parts())
                         : geometry.data_member(stripe, part);
}

ByteRange RebuildPlan::data_range(uint32_t stripe, uint32_t part, uint64_t block) const {
  return group_->geometry().block_of_piece(member_of(stripe, part), part, block);
}

bool RebuildPlan::is_lost(uint32_t stripe, uint32_t part, uint64_t block) const {
  const uint32_t member = member_of(stripe, part);
  if (is_parity(part)) return surveys_[member].parity_lost;
  const ByteRange range = data_range(stripe, part, block);
  if (range.bytes() == 0) return false;  // zeros are known
  const std::vector<ByteRange>& lost = lost_ranges_[member];
  const auto first = std::upper_bound(lost.begin(), lost.end(), range.begin,
                                      [](uint64_t begin, const ByteRange& each) { return begin < each.end; });
  return first != lost.end() && first->begin < range.end;
}

uint32_t RebuildPlan::lost_parts(uint32_t stripe, uint64_t block) const {
  const StripeGeometry& geometry = group_->geometry();
  uint32_t count = 0;
  for (uint32_t part = 0; part < geometry.data_parts() + geometry.parity_parts(); ++part) {
    count += is_lost(stripe, part, block) ? 1 : 0;
  }
  return count;
}

Status RebuildPlan::check() const {
  const auto with_losses =
      std::count_if(surveys_.begin(), surveys_.end(), [](const MemberSurvey& each) { return each.anything_lost(); });
  if (static_cast<uint64_t>(with_losses) <= group_->geometry().parity_parts()) return {};
  for (uint32_t stripe = 0; stripe < group_->geometry().stripes(); ++stripe) {
    for (uint64_t block = 0; block < blocks(stripe); ++block) {
      if (lost_parts(stripe, block) > group_->geometry().parity_parts()) return too_much_lost();
    }
  }
  return {};
}

Status RebuildPlan::too_much_lost() const {
  std::vector<std::string> losses;
  for (uint32_t position = 0; position < group_->members(); ++position) {
    if (!surveys_[position].anything_lost()) continue;
    losses.push_back(fmt::format("{} lost {}", group_->name_of(position),
                                 name_losses(group_->member(position), surveys_[position])));
  }
  const uint32_t losses_max = group_->group().redundancy.losses_max();
  return Status::not_found(
      fmt::format("too many nodes of a failure group have lost files: {}, where {} can rebuild the "
                  "loss of {}",
                  losses.size(), group_->group().redundancy.text(), losses_max),
      fmt::format("{}: {}", group_->group().label, fmt::join(losses, "; ")), "take another level, or an older set");
}

std::vector<RebuildPlan::Task> RebuildPlan::tasks(uint32_t position) const {
  const StripeGeometry& geometry = group_->geometry();
  std::vector<Task> tasks;
  for (uint32_t row = 0; surveys_[position].parity_lost && row < geometry.parity_parts(); ++row) {
    const uint32_t stripe = geometry.stripe_of_parity(position, row);
    for (uint64_t block = 0; block < blocks(stripe); ++block) {
      tasks.push_back({stripe, geometry.data_parts() + row, block});
    }
  }
  for (uint32_t piece = 0; !lost_ranges_[position].empty() && piece < geometry.data_parts(); ++piece) {
    const uint32_t stripe = geometry.stripe_of_piece(position, piece);
    for (uint64_t block = 0; block < blocks(stripe); ++block) {
      if (is_lost(stripe, piece, block)) tasks.push_back({stripe, piece, block});
    }
  }
  return tasks;
}

std::vector<uint32_t> RebuildPlan::sources(const Task& task) const {
  const StripeGeometry& geometry = group_->geometry();
  std::vector<uint32_t> zeros, others;
  for (uint32_t part = 0; part < geometry.data_parts() + geometry.parity_parts(); ++part) {
    if (part == task.part || is_lost(task.stripe, part, task.block)) continue;
    const bool no_bytes = !is_parity(part) && data_range(task.stripe, part, task.block).bytes() == 0;
    (no_bytes ? zeros : others).push_back(part);
  }
  zeros.insert(zeros.end(), others.begin(), others.end());
  zeros.resize(std::min<size_t>(zeros.size(), geometry.data_parts()));
  return zeros;
}

}  // namespace varve
