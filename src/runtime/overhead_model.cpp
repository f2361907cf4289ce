#include "runtime/overhead_model.h"

#include <algorithm>
#include <cmath>

namespace varve {

uint64_t OverheadModel::asynchronous_checkpoints_max(double run_seconds) const {
  const double count = run_seconds / io_seconds();
  // A quotient of decimal numbers that should be whole may fall just short of it.
  return count >= 1e18 ? UINT64_MAX : static_cast<uint64_t>(std::max(0.0, count * (1 + 1e-12)));
}

double best_interval_seconds(double checkpoint_seconds, double mean_time_between_failures) {
  const double cost = checkpoint_seconds, mtbf = mean_time_between_failures;
  if (cost >= 2 * mtbf) return mtbf;
  const double ratio = cost / (2 * mtbf);
  return std::sqrt(2 * cost * mtbf) * (1 + std::sqrt(ratio) / 3 + ratio / 9) - cost;
}

double expected_waste(double interval_seconds, double checkpoint_seconds, double mean_time_between_failures) {
  const double period = interval_seconds + checkpoint_seconds;
  if (period <= 0) return 0;
  return std::min(1.0, checkpoint_seconds / period + period / 2 / mean_time_between_failures);
}

}  // namespace varve
