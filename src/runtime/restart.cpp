#include "runtime/restart.h"

#include <fmt/format.h>

#include <algorithm>

#include "comm/agreement.h"

namespace varve {

namespace {
/// Whether an older candidate may do instead.
bool is_damage(const Status& status) {
  return status.code() == StatusCode::corrupt || status.code() == StatusCode::not_found ||
         status.code() == StatusCode::io_error;
}

Status on_rank(const Communicator& ranks, const RankFailure& failure) {
  return ranks.rank_count() == 1 ? failure.what : failure.what.with_context(fmt::format("rank {}", failure.rank));
}

/// One warning for a candidate, however many ranks cannot use it.
Status pass_over(const Communicator& ranks, const RestartCandidate& candidate,
                 const std::vector<RankFailure>& failures) {
  std::string context = fmt::format("{} was passed over", candidate.to_string());
  if (failures.size() > 1) context += fmt::format(" (damaged on {} ranks)", failures.size());
  return on_rank(ranks, failures.front()).with_context(context);
}
}  // namespace

Result<RestartDecision> restart_from_newest(Communicator& ranks, const std::vector<RestartCandidate>& candidates,
                                            RestartSide& side) {
  RestartDecision decision;
  for (const RestartCandidate& candidate : candidates) {
    VARVE_ASSIGN(const std::vector<RankFailure> failures, gather_failures(ranks, side.check(candidate)));
    const auto refusal = std::find_if(failures.begin(), failures.end(),
                                      [](const RankFailure& failure) { return !is_damage(failure.what); });
    if (refusal != failures.end()) {
      return on_rank(ranks, *refusal).with_context(fmt::format("cannot restart from {}", candidate.to_string()));
    }
    if (!failures.empty()) {
      decision.passed_over.push_back(candidate);
      // What cannot be read today may be readable tomorrow.
      const bool unreadable = std::any_of(failures.begin(), failures.end(), [](const RankFailure& failure) {
        return failure.what.code() == StatusCode::io_error;
      });
      if (!candidate.memory_run && !unreadable) decision.damaged_steps.push_back(candidate.step);
      decision.warnings.push_back(pass_over(ranks, candidate, failures));
      continue;
    }
    VARVE_TRY(agree(ranks, side.load())
                  .with_context(fmt::format("{} could not be loaded, and what is protected is now undefined",
                                            candidate.to_string())));
    decision.taken = candidate;
    return decision;
  }
  if (!decision.warnings.empty()) {
    const Status& newest = decision.warnings.front();
    return Status::corrupt(fmt::format("no checkpoint is whole; {}", newest.message()), std::string(newest.subject()),
                           "`varve verify` tells what is damaged; `varve drop` the sets to start anew");
  }
  return decision;
}

}  // namespace varve
