#pragma once

#include <cstdint>

namespace varve {

/// What checkpoints cost a run: equations (1) and (2) of Shahzad et al. (2013), section IV. Sizes in bytes, bandwidths
/// in bytes per second, all above 0.
struct OverheadModel {
  double node_bytes = 0;               ///< S_CP,node: of one checkpoint on one node
  double memory_bytes_per_second = 0;  ///< B_M: of one node
  double io_bytes_per_second = 0;      ///< B_IO: of the file system, for all nodes together
  /// m: how often each byte of a checkpoint passes through the memory until it is written; 5 to 7 for plain files with
  /// Open MPI, as the paper measured.
  double memory_passes = 7;
  uint64_t node_count = 1;

  /// S_CP: of one checkpoint, all nodes.
  double checkpoint_bytes() const { return node_bytes * static_cast<double>(node_count); }
  /// How long one checkpoint is on its way to the file system.
  double io_seconds() const { return checkpoint_bytes() / io_bytes_per_second; }
  /// Equation (1), for one checkpoint: the program waits until it is written.
  double synchronous_seconds() const { return io_seconds(); }
  /// Equation (2), for one checkpoint: writing takes memory bandwidth away from the program.
  double asynchronous_seconds() const { return memory_passes * node_bytes / memory_bytes_per_second; }
  /// How many asynchronous checkpoints a run of so many seconds (without them) can have that do not wait for one
  /// another.
  uint64_t asynchronous_checkpoints_max(double run_seconds) const;
};

/// The interval between checkpoints, from the end of one to the begin of the next, that wastes the least time on
/// checkpoints and on work done again after failures: the higher-order estimate of Daly (2006), equation 37.
/// `checkpoint_seconds` is what one checkpoint costs the program; all in seconds, not below 0.
double best_interval_seconds(double checkpoint_seconds, double mean_time_between_failures);

/// The share of time that is lost when a checkpoint of so many seconds is made at such intervals: to the checkpoints,
/// and to the work since the last one, half an interval on average, at each failure. 1 at most.
double expected_waste(double interval_seconds, double checkpoint_seconds, double mean_time_between_failures);

}  // namespace varve
