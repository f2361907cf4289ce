#pragma once

#include <array>

namespace lbm {

/// The D3Q19 lattice: the resting population, then nine pairs of opposite ones. `opposite(q)` of 2k-1 is 2k.
inline constexpr int kPopulations = 19;

struct Direction {
  int x, y, z;
  double weight;
};

inline constexpr double kFace = 1.0 / 18, kEdge = 1.0 / 36;
inline constexpr std::array<Direction, kPopulations> kDirections{{
    {0, 0, 0, 1.0 / 3}, {1, 0, 0, kFace},   {-1, 0, 0, kFace},  {0, 1, 0, kFace},   {0, -1, 0, kFace},
    {0, 0, 1, kFace},   {0, 0, -1, kFace},  {1, 1, 0, kEdge},   {-1, -1, 0, kEdge}, {1, -1, 0, kEdge},
    {-1, 1, 0, kEdge},  {1, 0, 1, kEdge},   {-1, 0, -1, kEdge}, {1, 0, -1, kEdge},  {-1, 0, 1, kEdge},
    {0, 1, 1, kEdge},   {0, -1, -1, kEdge}, {0, 1, -1, kEdge},  {0, -1, 1, kEdge},
}};

constexpr int opposite(int q) { return q == 0 ? 0 : (q % 2 == 1 ? q + 1 : q - 1); }

}  // namespace lbm
