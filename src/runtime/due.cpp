#include "runtime/due.h"

#include <array>

namespace varve {

Result<Due> agree_on_due(Communicator& ranks, const Cadence& cadence, StopRequests& stop, uint64_t step) {
  const bool alone = ranks.rank_count() == 1;
  const bool everyone_knows = cadence.by_steps_alone();
  // Clocks differ: where time counts, one rank decides.
  const bool decides = everyone_knows || ranks.rank() == 0;
  std::array<uint64_t, 2> votes = {decides && cadence.due(step), stop.requested()};
  if (!alone && (!everyone_knows || stop.possible())) VARVE_TRY(ranks.all_max(votes));
  return Due{.checkpoint = votes[0] != 0 || votes[1] != 0, .stop = votes[1] != 0};
}

}  // namespace varve
