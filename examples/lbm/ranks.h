#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#ifdef LBM_WITH_MPI
#include <mpi.h>
#endif

namespace lbm {

/// The processes that share the domain, as a grid of blocks; without MPI it is one process.
class Ranks {
 public:
  /// Cuts `cells` (x, y, z) into one block for each process; `periodic` tells which dimensions close on themselves.
  Ranks(std::array<int64_t, 3> cells, std::array<bool, 3> periodic);
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  int rank() const { return rank_; }
  int count() const { return count_; }
  /// Of this process's block.
  std::array<int64_t, 3> cells() const { return cells_; }
  std::array<int64_t, 3> offset() const { return offset_; }
  /// The process beyond the low (side 0) or high (side 1) face of `dimension`; -1 where the domain ends.
  int neighbour(int dimension, int side) const { return neighbours_[dimension][side]; }

  /// Sends `out` to `to` and fills `in` with what `from` sends; either may be -1 (nobody).
  void exchange(std::span<const double> out, int to, std::span<double> in, int from) const;
  /// What each process gave, by rank.
  std::vector<double> gather(double mine) const;
  std::vector<uint64_t> gather(uint64_t mine) const;
  /// All processes' arrays one after the other, at rank 0; empty at the others.
  std::vector<float> gather(const std::vector<float>& mine) const;
  void barrier() const;

#ifdef LBM_WITH_MPI
  MPI_Comm communicator() const { return communicator_; }
#endif

 private:
#ifdef LBM_WITH_MPI
  MPI_Comm communicator_ = MPI_COMM_NULL;
#endif
  int rank_ = 0, count_ = 1;
  std::array<int64_t, 3> cells_{}, offset_{};
  std::array<std::array<int, 2>, 3> neighbours_{};
};

}  // namespace lbm
