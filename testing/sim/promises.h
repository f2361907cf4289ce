#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "level/level_spec.h"

namespace varve::sim {

/// What may be lost, as docs/GUIDE.md has it in the columns of "Levels of a run".
enum class Loss : uint8_t {
  processes,           ///< are killed
  power,               ///< of all nodes
  disks,               ///< of a node, or of as many as the code says
  shared_file_system,  ///< or a server
};
inline constexpr size_t kLossCount = 4;

/// Of which level the newest set comes back then. What is nearer may be lost.
enum class Floor : uint8_t { memory, nearest_store, redundancy, farther_store, nothing };

/// A row of that table: what the guide says of some levels, and what the simulation demands of them.
struct PromiseRow {
  std::string_view levels;  ///< as the guide names them
  bool memory = false, local = false, redundancy = false, shared = false;
  std::array<std::string_view, kLossCount> said;
  std::array<Floor, kLossCount> floor;
};
std::span<const PromiseRow> promise_table();

/// What comes back if levels suffer a loss. `lost_nodes`: for disks.
Floor floor_of(const std::vector<LevelSpec>& levels, Loss loss, uint32_t lost_nodes = 1);

/// The rows, as they are to be in the guide.
std::string promise_table_text();

}  // namespace varve::sim
