#include "runtime/published_parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/guarded.h"

namespace varve {

namespace {
/// Who makes no sets looks for one first after this.
constexpr double kOwnLookSeconds = 10;
/// The same for who makes them, if it may be told sooner that all parts are there, and what they say.
constexpr double kUntoldSeconds = 0.05;
/// The next look comes after this share of the time waited so far.
constexpr double kWaitShare = 0.5;
/// To list all parts costs as much as there are groups. Of more than these, each lists them so much later, and sees
/// until then what can be seen without: so all together list no more often than so many do.
constexpr uint32_t kListingGroups = 64;
}  // namespace

void PublishedParts::add(DrainReport report, const LevelDuty& levels, SetRecord record) {
  const uint64_t step = report.step;
  auto completion = std::make_unique<SetCompletion>(store_, duty_.group.part_of(step), std::move(record),
                                                    duty_.policy_for(step), PartNames::used_once);
  const double now = clock_.seconds();
  const bool makes_sets = duty_.group.makes_sets();
  if (!makes_sets) report.end_seconds = now;
  const double until_look = !makes_sets ? kOwnLookSeconds : duty_.tells_parts ? kUntoldSeconds : 0;
  const double until_listing = until_look * std::max(1.0, static_cast<double>(duty_.group.count) / kListingGroups);
  parts_.push_back({std::move(report), levels, std::move(completion), now, now + until_look, now + until_listing});
}

/// The newest first: where it is due, so are all older ones, and sets are made in their order, as farther levels
/// expect.
void PublishedParts::see_what_is_due() {
  const double now = clock_.seconds();
  bool newer_is_due = false;
  for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) {
    part->state = notes_.state_of(part->report.step);
    const bool all_there = duty_.group.makes_sets() && part->state == SetState::all_there;
    part->is_look_due = newer_is_due || all_there || now >= part->next_look;
    newer_is_due = part->is_look_due;
    // So the number of looks grows with the logarithm of the time.
    if (part->is_look_due) part->next_look = now + kWaitShare * (now - part->since);
  }
}

void PublishedParts::look(const std::function<void(DrainReport report, const LevelDuty& levels)>& conclude) {
  see_what_is_due();
  for (auto part = parts_.begin(); part != parts_.end();) {
    std::optional<Status> outcome = outcome_of(*part);
    if (!outcome) {
      ++part;
      continue;
    }
    if (!outcome->ok()) part->completion->withdraw().ignore("the next prune removes it");
    part->report.outcome = std::move(*outcome);
    Part done = std::move(*part);
    part = parts_.erase(part);
    conclude(std::move(done.report), done.levels);
  }
}

/// None: it may still become complete.
std::optional<Status> PublishedParts::outcome_of(Part& part) {
  const uint64_t step = part.report.step;
  const bool makes_sets = duty_.group.makes_sets();
  const SetState state = part.state;
  if (state == SetState::complete) return Status();
  // First this, then the look: what another one has completed is there then.
  const bool hopeless = state == SetState::given_up || progress_.cancelled() || siblings_->any_is_done_with(step);
  const bool too_late = clock_.seconds() - part.since > duty_.wait_seconds;
  if (!hopeless && !too_late && !part.is_look_due) return std::nullopt;
  if (makes_sets && duty_.may_save) {
    const Status allowed = duty_.may_save();
    if (!allowed.ok()) return allowed;
  }
  if (makes_sets) part.completion->note_told(notes_.take_parts(step));
  const bool lists = hopeless || too_late || clock_.seconds() >= part.next_listing;
  const auto set = run_guarded([&] {
    return makes_sets ? part.completion->try_now() : lists ? part.completion->look() : part.completion->look_briefly();
  });
  if (lists) part.next_listing = part.next_look;
  if (set.ok() && *set) return Status();
  if (!set.ok()) return set.status();
  if (hopeless) {
    return Status::io_error("another group could not write its part", duty_.group.set_of(step).to_string());
  }
  return too_late ? std::optional(late(part)) : std::nullopt;
}

Status PublishedParts::late(const Part& part) const {
  std::string names;
  for (const uint32_t ordinal : part.completion->missing()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", duty_.group_name ? duty_.group_name(ordinal) : "");
  }
  return Status::busy(fmt::format("{} did not write its part of the set within {:.0f} s", names, duty_.wait_seconds),
                      duty_.group.set_of(part.report.step).to_string(), "wait_limit= says how long to wait");
}

void PublishedParts::tell_others(uint64_t step, const Status& failure) {
  if (duty_.group.count < 2) return;
  const Status told = run_guarded([&] { return publish_failure(store_, duty_.group.part_of(step), failure); });
  if (told.ok()) told_failures_.push_back(duty_.group.part_of(step));
}

void PublishedParts::forget_told() {
  for (const PartName& failed : told_failures_) remove_failure(store_, failed).ignore("a prune removes it in time");
  told_failures_.clear();
}

}  // namespace varve
