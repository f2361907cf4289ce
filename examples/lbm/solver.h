#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lattice.h"
#include "ranks.h"

namespace lbm {

enum class Flow {
  cavity,   ///< a box whose lid (high z) moves along x
  channel,  ///< periodic along x, driven by a force, between walls in y and z
};

struct FlowOptions {
  Flow flow = Flow::cavity;
  double reynolds = 100;  ///< with the lid's (or the channel's mean) speed and the size along z
  double speed = 0.05;    ///< in cells a step
};

/// Lattice-Boltzmann flow on this process's block: D3Q19, two relaxation times, half-way bounce-back at walls. There
/// are two grids that toggle; each holds the 19 populations one after the other, each of them a block of cells with one
/// layer of ghost cells around it, x fastest. Results depend on the number of processes, and on nothing else.
class Solver {
 public:
  /// The grids have grid_size() elements each, and outlive this.
  Solver(const Ranks& ranks, std::array<int64_t, 3> domain, const FlowOptions& options, std::span<double> current,
         std::span<double> next);
  static uint64_t grid_size(const Ranks& ranks);

  /// Fluid at rest in the current grid.
  void start();
  /// Makes the ghost cells of the current grid right again, after its inner cells were put there from elsewhere.
  void complete_ghosts();
  /// One time step: reads the current grid and writes the other, which is then the current one.
  void advance();

  std::span<double> current() const { return current_; }
  /// Has the grid after next written to `spare`, because the current one may be read but not written any more.
  void spare_current(std::span<double> spare) { spare_ = spare; }

  /// Of each cell of the block's part of the plane y = domain/2, row by row: speed, over the reference speed.
  std::vector<float> plane() const;
  /// A number that two states share only if they are the same, bit by bit.
  uint64_t checksum() const;

 private:
  void exchange_ghosts(std::span<double> grid) const;
  void bounce_back(std::span<double> grid) const;
  size_t at(int q, int64_t x, int64_t y, int64_t z) const {
    return static_cast<size_t>(((q * (cells_[2] + 2) + z + 1) * (cells_[1] + 2) + y + 1) * (cells_[0] + 2) + x + 1);
  }
  /// Calls `visit(x, y, z)` for the cells of a plane: `dimension` = `position`, the others from `low` below zero to
  /// `high` beyond the block.
  template <class Visit>
  void for_plane(int dimension, int64_t position, const std::array<int64_t, 3>& margin, const Visit& visit) const;

  const Ranks& ranks_;
  const std::array<int64_t, 3> cells_, domain_;
  const FlowOptions options_;
  double symmetric_rate_ = 1, antisymmetric_rate_ = 1, force_ = 0;
  std::span<double> current_, next_, spare_;
};

}  // namespace lbm
