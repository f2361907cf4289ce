#include "core/state_folder.h"

#include <cstdlib>

#include "core/file_system.h"

namespace varve {

Result<std::string> state_folder() {
  const char* const state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && state[0] == '/') return join_path(state, "varve");
  const char* const home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') return join_path(home, ".local/state/varve");
  return Status::invalid_argument("there is no place for the state of programs", "",
                                  "set XDG_STATE_HOME or HOME in the environment");
}

}  // namespace varve
