#pragma once

#include <functional>
#include <vector>

#include "core/bytes.h"
#include "varve/communicator.h"
#include "varve/status.h"

namespace varve {

/// The same failure on all ranks: OK if all ranks have OK, else that of the first rank that has none, with its number
/// if there are several ranks. Costs one reduction while all is well. Collective.
Status agree(Communicator& ranks, const Status& mine);

/// What the first rank gave, on all ranks: of what it alone decides. Collective.
Status follow_first(Communicator& ranks, const Status& mine);

/// The bytes that the first rank makes, on all ranks, or why it could not; the others do not call `make`. Costs one
/// broadcast. Collective. resource_limit: the first rank lacked memory even to say what is wrong.
Result<ByteVector> told_by_first(Communicator& ranks, const std::function<Result<ByteVector>()>& make);

/// What went wrong on a rank.
struct RankFailure {
  uint32_t rank = 0;
  Status what;
};

/// All failures, by rank, the same on all ranks; none if all have OK. Fails if the ranks cannot talk. Collective.
Result<std::vector<RankFailure>> gather_failures(Communicator& ranks, const Status& mine);

}  // namespace varve
