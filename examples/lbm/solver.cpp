#include "solver.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

namespace lbm {

namespace {
/// Relaxes one row of cells: `from[q]` and `to[q]` are where the populations of its first cell are pulled from and go.
/// Two relaxation rates (Ginzburg et al., 2008): one for the symmetric, one for the antisymmetric part of each pair.
__attribute__((target_clones("avx512f", "avx2", "default"))) void relax_row(const double* const* from,
                                                                            double* const* to, int64_t cells,
                                                                            double symmetric_rate,
                                                                            double antisymmetric_rate, double force) {
#define ROW(q)                               \
  const double* __restrict__ f##q = from[q]; \
  double* __restrict__ t##q = to[q]
  ROW(0);
  ROW(1);
  ROW(2);
  ROW(3);
  ROW(4);
  ROW(5);
  ROW(6);
  ROW(7);
  ROW(8);
  ROW(9);
  ROW(10);
  ROW(11);
  ROW(12);
  ROW(13);
  ROW(14);
  ROW(15);
  ROW(16);
  ROW(17);
  ROW(18);
#undef ROW
#pragma GCC ivdep
  for (int64_t i = 0; i < cells; ++i) {
    const double p0 = f0[i], p1 = f1[i], p2 = f2[i], p3 = f3[i], p4 = f4[i], p5 = f5[i], p6 = f6[i], p7 = f7[i],
                 p8 = f8[i], p9 = f9[i], p10 = f10[i], p11 = f11[i], p12 = f12[i], p13 = f13[i], p14 = f14[i],
                 p15 = f15[i], p16 = f16[i], p17 = f17[i], p18 = f18[i];
    const double density = p0 + ((p1 + p2) + (p3 + p4)) + ((p5 + p6) + (p7 + p8)) + ((p9 + p10) + (p11 + p12)) +
                           ((p13 + p14) + (p15 + p16)) + (p17 + p18);
    const double per_density = 1.0 / density;
    const double ux = ((p1 - p2) + (p7 - p8) + (p9 - p10) + (p11 - p12) + (p13 - p14)) * per_density;
    const double uy = ((p3 - p4) + (p7 - p8) - (p9 - p10) + (p15 - p16) + (p17 - p18)) * per_density;
    const double uz = ((p5 - p6) + (p11 - p12) - (p13 - p14) + (p15 - p16) - (p17 - p18)) * per_density;
    const double still = 1.0 - 1.5 * (ux * ux + uy * uy + uz * uz);
    t0[i] = p0 - symmetric_rate * (p0 - 1.0 / 3 * density * still);
    // A pair of opposite populations; u is the velocity along the first, e its x component.
#define PAIR(a, b, weight, u, e)                                                                                   \
  {                                                                                                                \
    const double along = (u);                                                                                      \
    const double even = symmetric_rate * (0.5 * (p##a + p##b) - (weight)*density * (still + 4.5 * along * along)); \
    const double odd =                                                                                             \
        antisymmetric_rate * (0.5 * (p##a - p##b) - (weight)*density * 3.0 * along) - 3.0 * (weight) * (e)*force;  \
    t##a[i] = p##a - even - odd;                                                                                   \
    t##b[i] = p##b - even + odd;                                                                                   \
  }
    PAIR(1, 2, kFace, ux, 1)
    PAIR(3, 4, kFace, uy, 0)
    PAIR(5, 6, kFace, uz, 0)
    PAIR(7, 8, kEdge, ux + uy, 1)
    PAIR(9, 10, kEdge, ux - uy, 1)
    PAIR(11, 12, kEdge, ux + uz, 1)
    PAIR(13, 14, kEdge, ux - uz, 1)
    PAIR(15, 16, kEdge, uy + uz, 0)
    PAIR(17, 18, kEdge, uy - uz, 0)
#undef PAIR
  }
}

int component(const Direction& direction, int dimension) {
  return dimension == 0 ? direction.x : dimension == 1 ? direction.y : direction.z;
}
}  // namespace

Solver::Solver(const Ranks& ranks, std::array<int64_t, 3> domain, const FlowOptions& options, std::span<double> current,
               std::span<double> next)
    : ranks_(ranks), cells_(ranks.cells()), domain_(domain), options_(options), current_(current), next_(next) {
  const double viscosity = options.speed * static_cast<double>(domain[2]) / options.reynolds;
  symmetric_rate_ = 1.0 / (3.0 * viscosity + 0.5);
  // The "magic" product 3/16 puts the walls exactly half way between cells, whatever the viscosity.
  antisymmetric_rate_ = 1.0 / (0.5 + 3.0 / 16 / (1.0 / symmetric_rate_ - 0.5));
  if (options.flow == Flow::channel) {
    const double height = static_cast<double>(domain[2]);
    force_ = 12.0 * viscosity * options.speed / (height * height);
  }
}

uint64_t Solver::grid_size(const Ranks& ranks) {
  uint64_t size = kPopulations;
  for (int64_t cells : ranks.cells()) size *= static_cast<uint64_t>(cells + 2);
  return size;
}

void Solver::start() {
  const size_t block = current_.size() / kPopulations;
  for (int q = 0; q < kPopulations; ++q) {
    std::fill_n(current_.begin() + static_cast<ptrdiff_t>(block * static_cast<size_t>(q)), block,
                kDirections[static_cast<size_t>(q)].weight);
  }
  complete_ghosts();
}

void Solver::complete_ghosts() {
  exchange_ghosts(current_);
  bounce_back(current_);
}

void Solver::advance() {
  std::array<const double*, kPopulations> from;
  std::array<double*, kPopulations> to;
  for (int64_t z = 0; z < cells_[2]; ++z) {
    for (int64_t y = 0; y < cells_[1]; ++y) {
      for (int q = 0; q < kPopulations; ++q) {
        const Direction& e = kDirections[static_cast<size_t>(q)];
        from[static_cast<size_t>(q)] = current_.data() + at(q, -e.x, y - e.y, z - e.z);
        to[static_cast<size_t>(q)] = next_.data() + at(q, 0, y, z);
      }
      relax_row(from.data(), to.data(), cells_[0], symmetric_rate_, antisymmetric_rate_, force_);
    }
  }
  std::swap(current_, next_);
  if (!spare_.empty()) next_ = std::exchange(spare_, {});
  complete_ghosts();
}

template <class Visit>
void Solver::for_plane(int dimension, int64_t position, const std::array<int64_t, 3>& margin,
                       const Visit& visit) const {
  std::array<int64_t, 3> low, high;
  for (int d = 0; d < 3; ++d) {
    low[d] = d == dimension ? position : -margin[d];
    high[d] = d == dimension ? position + 1 : cells_[d] + margin[d];
  }
  for (int64_t z = low[2]; z < high[2]; ++z) {
    for (int64_t y = low[1]; y < high[1]; ++y) {
      for (int64_t x = low[0]; x < high[0]; ++x) visit(x, y, z);
    }
  }
}

void Solver::exchange_ghosts(std::span<double> grid) const {
  // One dimension after the other, each with the ghost cells that the earlier ones brought: so edges travel too.
  std::array<int64_t, 3> margin{0, 0, 0};
  std::vector<double> out, in;
  for (int d = 0; d < 3; ++d) {
    for (int side = 0; side < 2; ++side) {
      const int to = ranks_.neighbour(d, side), from = ranks_.neighbour(d, 1 - side);
      if (to < 0 && from < 0) continue;
      // Only the populations that cross the face go.
      auto for_crossing = [&](int64_t position, const auto& visit) {
        for (int q = 0; q < kPopulations; ++q) {
          if (component(kDirections[static_cast<size_t>(q)], d) != (side == 0 ? -1 : 1)) continue;
          for_plane(d, position, margin, [&](int64_t x, int64_t y, int64_t z) { visit(grid[at(q, x, y, z)]); });
        }
      };
      out.clear();
      for_crossing(side == 0 ? 0 : cells_[d] - 1, [&](double& value) { out.push_back(value); });
      in.resize(out.size());
      ranks_.exchange(out, to, in, from);
      if (from >= 0) {
        size_t next = 0;
        for_crossing(side == 0 ? cells_[d] : -1, [&](double& value) { value = in[next++]; });
      }
    }
    margin[d] = 1;
  }
}

void Solver::bounce_back(std::span<double> grid) const {
  // A population that would be pulled out of a wall is the opposite one of the same cell, pushed by the wall's motion.
  for (int d = 0; d < 3; ++d) {
    for (int side = 0; side < 2; ++side) {
      if (ranks_.neighbour(d, side) >= 0) continue;
      const bool lid = options_.flow == Flow::cavity && d == 2 && side == 1;
      for (int q = 0; q < kPopulations; ++q) {
        const Direction& e = kDirections[static_cast<size_t>(q)];
        if (component(e, d) != (side == 0 ? 1 : -1)) continue;
        const double push = lid ? 6.0 * e.weight * e.x * options_.speed : 0.0;
        for_plane(d, side == 0 ? 0 : cells_[d] - 1, {0, 0, 0}, [&](int64_t x, int64_t y, int64_t z) {
          grid[at(q, x - e.x, y - e.y, z - e.z)] = grid[at(opposite(q), x, y, z)] + push;
        });
      }
    }
  }
}

std::vector<float> Solver::plane() const {
  std::vector<float> speeds;
  const int64_t y = domain_[1] / 2 - ranks_.offset()[1];
  if (y < 0 || y >= cells_[1]) return speeds;
  for_plane(1, y, {0, 0, 0}, [&](int64_t x, int64_t, int64_t z) {
    double density = 0, ux = 0, uy = 0, uz = 0;
    for (int q = 0; q < kPopulations; ++q) {
      const Direction& e = kDirections[static_cast<size_t>(q)];
      const double f = current_[at(q, x, y, z)];
      density += f;
      ux += f * e.x;
      uy += f * e.y;
      uz += f * e.z;
    }
    ux -= 0.5 * force_;  // the velocity in the middle of the step's push
    speeds.push_back(static_cast<float>(std::sqrt(ux * ux + uy * uy + uz * uz) / density / options_.speed));
  });
  return speeds;
}

uint64_t Solver::checksum() const {
  // A sum over all cells, each with its place in the whole: the same however the cells are divided among ranks.
  auto mixed = [](uint64_t bits) {
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
    return bits ^ (bits >> 31);
  };
  const auto offset = ranks_.offset();
  uint64_t sum = 0;
  for (int q = 0; q < kPopulations; ++q) {
    for (int64_t z = 0; z < cells_[2]; ++z) {
      for (int64_t y = 0; y < cells_[1]; ++y) {
        for (int64_t x = 0; x < cells_[0]; ++x) {
          uint64_t place = static_cast<uint64_t>(q);
          for (const int64_t part : {z + offset[2], y + offset[1], x + offset[0]})
            place = place << 20 ^ static_cast<uint64_t>(part);
          sum += mixed(std::bit_cast<uint64_t>(current_[at(q, x, y, z)]) + mixed(place + 1));
        }
      }
    }
  }
  const std::vector<uint64_t> parts = ranks_.gather(sum);
  return std::accumulate(parts.begin(), parts.end(), uint64_t{0});
}

}  // namespace lbm
