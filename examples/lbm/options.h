#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "solver.h"

namespace lbm {

enum class Mode {
  none,   ///< no checkpoints
  sync,   ///< the program waits until a checkpoint is in the store
  async,  ///< it waits for a copy in memory
  lent,   ///< it hands the grid over and goes on with a spare
  files,  ///< no Varve: a plain file for each rank, written and synced while the program waits
};

struct Options {
  std::array<int64_t, 3> cells{64, 64, 64};
  uint64_t steps = 200;
  uint64_t every = 50;
  Mode mode = Mode::async;
  FlowOptions flow;
  std::string picture, json;
  std::string files_folder = "lbm-files";
  double files_bytes_per_second = 0;  ///< that mode `files` writes at most, each rank; 0: no limit
};

/// Exits with the help or a message if the arguments say so.
Options parse_options(int count, char** arguments);

}  // namespace lbm
