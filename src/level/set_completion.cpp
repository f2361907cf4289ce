#include "level/set_completion.h"

#include <fmt/format.h>

#include <algorithm>

namespace varve {

namespace {
/// A store that fails so often in a row is not waited for.
constexpr uint32_t kFailuresMax = 5;

bool has_groups_of(const SetRecord& set, const SetRecord& part) {
  auto in_set = [&](const GroupRecord& group) {
    return std::any_of(set.groups.begin(), set.groups.end(),
                       [&](const GroupRecord& other) { return other.root == group.root && other.hint == group.hint; });
  };
  return std::all_of(part.groups.begin(), part.groups.end(), in_set);
}
}  // namespace

Result<std::optional<SetCompletion::Set>> SetCompletion::try_now() {
  Result<SetRecord> made = complete_set(store_, own_.run, own_.set, own_.count, if_exists_);
  if (made.ok()) return std::optional(Set{std::move(*made), true});
  const Status why = made.status();
  if (why.code() == StatusCode::busy) return std::optional<Set>();
  const bool early = why.code() == StatusCode::not_found || why.code() == StatusCode::already_exists;
  if (!early && ++failures_ >= kFailuresMax) return why;
  if (early) failures_ = 0;
  return look_at_catalog(why);
}

Result<std::optional<SetCompletion::Set>> SetCompletion::look_at_catalog(const Status& why) {
  const Result<SetRecord> there = Catalog(store_).read(own_.set);
  if (there.ok() && has_groups_of(*there, part_)) return std::optional(Set{*there, false});
  if (why.code() == StatusCode::already_exists && if_exists_ == IfExists::refuse && there.ok()) return why;
  return look_at_parts();
}

bool SetCompletion::has_newer_of_run() const {
  const Catalog catalog(store_);
  const Result<std::vector<uint64_t>> steps = catalog.steps(own_.set.job);
  if (!steps.ok() || steps->empty() || steps->back() <= own_.set.step) return false;
  const Result<SetRecord> newest = catalog.read({own_.set.job, steps->back()});
  return newest.ok() && (newest->run == own_.run || newest->run == part_.run);
}

Result<std::optional<SetCompletion::Set>> SetCompletion::look_at_parts() {
  const Result<std::vector<PartName>> parts = list_parts(store_);
  // Whatever keeps us from looking now may be over the next time.
  if (!parts.ok())
    return ++failures_ < kFailuresMax ? Result<std::optional<Set>>(std::optional<Set>()) : parts.status();
  if (!std::binary_search(parts->begin(), parts->end(), own_)) {
    const Result<SetRecord> there = Catalog(store_).read(own_.set);
    if (there.ok() && has_groups_of(*there, part_)) return std::optional(Set{*there, false});
    // Parts go when their set is complete: it was, and a newer one of this run has taken its place since.
    if (there.status().code() == StatusCode::not_found && has_newer_of_run()) return std::optional(Set{part_, false});
    return Status::not_found("the set was removed while it was being completed", own_.set.to_string());
  }
  VARVE_TRY(failure_of_others());
  for (const PartName& part : *parts) {
    if (part.run != own_.run || part.set.job != own_.set.job || part.set.step <= own_.set.step) continue;
    PartName missing = own_;
    missing.ordinal = part.ordinal;
    if (std::binary_search(parts->begin(), parts->end(), missing)) continue;
    return Status::io_error(fmt::format("group {} of {} did not write its part", part.ordinal + 1, own_.count),
                            own_.set.to_string());
  }
  return std::optional<Set>();
}

/// What another group has told.
Status SetCompletion::failure_of_others() const {
  const Result<std::vector<PartName>> failures = list_parts(store_, PartName::Kind::failed);
  if (!failures.ok()) return {};
  for (const PartName& failed : *failures) {
    if (failed.run != own_.run || failed.set != own_.set || failed.count != own_.count) continue;
    return read_failure(store_, failed)
        .with_context(fmt::format("group {} of {} could not write its part", failed.ordinal + 1, own_.count));
  }
  return {};
}

std::vector<uint32_t> SetCompletion::missing() const {
  const Result<std::vector<PartName>> parts = list_parts(store_);
  std::vector<uint32_t> missing;
  PartName part = own_;
  for (part.ordinal = 0; parts.ok() && part.ordinal < own_.count; ++part.ordinal) {
    if (!std::binary_search(parts->begin(), parts->end(), part)) missing.push_back(part.ordinal);
  }
  return missing;
}

Status SetCompletion::withdraw() { return remove_part(store_, own_); }

GroupSiblings::GroupSiblings(const std::vector<SegmentOwner>& leaders) {
  for (const SegmentOwner& leader : leaders) {
    Result<ControlBlock> control = ControlBlock::open(leader, SharedSegment::Access::read);
    // What cannot be seen is not known: completion then rests on the store alone.
    if (control.ok()) leaders_.push_back(std::move(*control));
  }
}

bool GroupSiblings::any_is_done_with(uint64_t step) const {
  return std::any_of(leaders_.begin(), leaders_.end(), [step](const ControlBlock& leader) {
    const std::optional<GroupNews> news = leader.news();
    return (news && news->finished_step && *news->finished_step >= step) || !leader.owner_alive();
  });
}

}  // namespace varve
