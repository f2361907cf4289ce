#include "runtime/restart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

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

/// corrupt, on all ranks, unless what they have checked belongs together. Collective.
Status check_origins(Communicator& ranks, const std::optional<SetOrigin>& origin) {
  std::array<uint64_t, 3> mine = {origin ? uint64_t{1} : uint64_t{0}, 0, 0};
  if (origin) std::memcpy(mine.data() + 1, origin->run.bytes.data(), origin->run.bytes.size());
  std::array<uint64_t, 3> least = mine, most = mine;
  VARVE_TRY(ranks.all_min(least));
  VARVE_TRY(ranks.all_max(most));
  if (least == most) return {};
  return Status::corrupt("what the nodes have of it was made by different runs");
}

/// What is wrong with a candidate. All ranks look before one of them reads it all. Collective.
Result<std::vector<RankFailure>> examine(Communicator& ranks, const RestartCandidate& candidate, RestartSide& side) {
  VARVE_ASSIGN(std::vector<RankFailure> failures, gather_failures(ranks, side.look(candidate)));
  if (!failures.empty()) return failures;
  const Status together = check_origins(ranks, side.origin());
  if (together.code() == StatusCode::corrupt) return std::vector<RankFailure>{{0, together}};
  VARVE_TRY(together);
  return gather_failures(ranks, side.check());
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
    VARVE_ASSIGN(std::vector<RankFailure> failures, examine(ranks, candidate, side));
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
      if (!candidate.memory_run && !unreadable) decision.damaged.push_back(candidate);
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
