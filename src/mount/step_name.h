#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace varve {

/// What the name of a folder below a job's says: the step, as choose_set_name() finds it, and whether it ends in
/// ".tmp": then its program has not finished, whatever else is to be seen.
struct StepName {
  uint64_t step = 0;
  bool temporary = false;
  /// It is the very name that the set has once it is committed.
  bool canonical = false;
};

/// None: it is not a name of a step. 1 to 100 bytes with a number, without '@' and control characters, not beginning
/// with '.' or '-'.
std::optional<StepName> parse_step_name(std::string_view name);

}  // namespace varve
