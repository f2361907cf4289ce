#include "runtime/published_parts.h"

#include <fmt/format.h>

#include "core/guarded.h"

namespace varve {

void PublishedParts::add(DrainReport report, const LevelDuty& levels, SetRecord record) {
  const uint64_t step = report.step;
  auto completion =
      std::make_unique<SetCompletion>(store_, duty_.group.part_of(step), std::move(record), duty_.policy_for(step));
  parts_.push_back({std::move(report), levels, std::move(completion), clock_.seconds()});
}

void PublishedParts::look(const std::function<void(DrainReport report, const LevelDuty& levels)>& conclude) {
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
  if (duty_.may_save) {
    const Status allowed = duty_.may_save();
    if (!allowed.ok()) return allowed;
  }
  // First this, then the look: what another one has completed is there then.
  const bool hopeless = siblings_->any_is_done_with(step) || notes_.is_given_up(step) || progress_.cancelled();
  const bool too_late = clock_.seconds() - part.since > duty_.wait_seconds;
  const auto set = run_guarded([&] { return part.completion->try_now(); });
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
