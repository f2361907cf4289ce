#pragma once

#include <cstdint>
#include <functional>

namespace varve::cli {

/// What a launcher (mpirun, srun) has started.
struct Launch {
  uint32_t process_count = 1;
  uint32_t process = 0;  ///< this one's number
};

/// Looks into the environment; `variable` gives the value of a variable, or null. One process if there is no launcher,
/// or if VARVE_ALONE says so.
Launch find_launch(const std::function<const char*(const char*)>& variable);
Launch find_launch();

}  // namespace varve::cli
