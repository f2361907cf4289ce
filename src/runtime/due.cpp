#include "runtime/due.h"

#include <algorithm>
#include <vector>

namespace varve {

Result<Due> agree_on_due(Communicator& ranks, const Cadence& cadence, StopRequests& stop, uint64_t step,
                         std::span<uint64_t> along) {
  const bool alone = ranks.rank_count() == 1;
  const bool everyone_knows = cadence.by_steps_alone();
  // Clocks differ: where time counts, one rank decides.
  const bool decides = everyone_knows || ranks.rank() == 0;
  std::vector<uint64_t> votes = {decides && cadence.due(step), stop.requested()};
  votes.insert(votes.end(), along.begin(), along.end());
  const bool talk = !alone && (!everyone_knows || stop.possible());
  if (talk) VARVE_TRY(ranks.all_max(votes));
  std::copy(votes.begin() + 2, votes.end(), along.begin());
  return Due{.checkpoint = votes[0] != 0 || votes[1] != 0, .stop = votes[1] != 0, .talked = talk};
}

}  // namespace varve
