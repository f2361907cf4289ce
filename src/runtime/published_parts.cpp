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
  parts_.back().awaits_nodes = duty_.replaces_on_nodes(step);
}

namespace {
/// So the number of looks grows with the logarithm of the time since then.
double next_look_after(double now, double since) { return now + kWaitShare * (now - since); }
}  // namespace

void PublishedParts::look_early() {
  const double now = clock_.seconds();
  for (Part& part : parts_) part.next_look = std::min(part.next_look, next_look_after(now, part.since));
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
    if (part->is_look_due) part->next_look = next_look_after(now, part->since);
  }
}

void PublishedParts::look(bool hears_more,
                          const std::function<void(DrainReport report, const LevelDuty& levels)>& conclude) {
  see_what_is_due();
  for (auto part = parts_.begin(); part != parts_.end();) {
    std::optional<Status> outcome = outcome_of(*part, hears_more);
    if (!outcome) {
      if (part->awaits_nodes) return;  // sets are made in their order
      ++part;
      continue;
    }
    if (!outcome->ok() && !part->report.may_come) part->completion->withdraw().ignore("the next prune removes it");
    part->report.outcome = std::move(*outcome);
    Part done = std::move(*part);
    part = parts_.erase(part);
    conclude(std::move(done.report), done.levels);
  }
}

/// None: that may still be known.
std::optional<Status> PublishedParts::outcome_before_all_have_theirs(Part& part, bool hears_more) const {
  const std::string set = duty_.group.set_of(part.report.step).to_string();
  if (part.state == SetState::given_up) return Status::io_error("another group could not write its part", set);
  if (hears_more && !progress_.cancelled() && part.state != SetState::cut_off) return std::nullopt;
  // Other nodes may have come to know it, and have given up their old set.
  part.report.may_come = true;
  return Status::io_error("it is not known whether all nodes have their parts of it", set);
}

/// None: it may still become complete.
std::optional<Status> PublishedParts::outcome_of(Part& part, bool hears_more) {
  const uint64_t step = part.report.step;
  const bool makes_sets = duty_.group.makes_sets();
  const SetState state = part.state;
  if (part.awaits_nodes) {
    if (!notes_.were_all_there(step)) return outcome_before_all_have_theirs(part, hears_more);
    part.awaits_nodes = false;
    // Others have given up their old set by now, or are about to.
    part.report.may_come = true;
    part.since = clock_.seconds();
  }
  if (state == SetState::complete) return Status();
  // First this, then the look: what another one has completed is there then.
  const bool is_over = state == SetState::given_up || state == SetState::cut_off;
  const bool hopeless = is_over || progress_.cancelled() || siblings_->any_is_done_with(step);
  const bool too_late = clock_.seconds() - part.since > wait_seconds_;
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
  // Others, who have more time, may still write theirs.
  if (too_late && wait_seconds_ < duty_.wait_seconds) part.report.may_come = true;
  return too_late ? std::optional(late(part)) : std::nullopt;
}

Status PublishedParts::late(const Part& part) const {
  std::string names;
  for (const uint32_t ordinal : part.completion->missing()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", duty_.group_name ? duty_.group_name(ordinal) : "");
  }
  return Status::busy(fmt::format("{} did not write its part of the set within {:.0f} s", names, wait_seconds_),
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
