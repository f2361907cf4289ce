#include "cli/launcher.h"

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

namespace varve::cli {

namespace {
/// How a launcher tells its processes how many they are, and which.
struct LauncherVariables {
  const char* count;
  const char* process;
};
/// Open MPI; MPICH, Intel MPI and others of their family; Slurm. Of Slurm not SLURM_NTASKS, which a batch script sees
/// as well, though it is one process.
constexpr LauncherVariables kLaunchers[] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
                                            {"PMI_SIZE", "PMI_RANK"},
                                            {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"}};

std::optional<uint32_t> parse_count(const char* text) {
  if (text == nullptr) return std::nullopt;
  const std::string_view digits(text);
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return error == std::errc() && end == digits.data() + digits.size() ? std::optional(number) : std::nullopt;
}
}  // namespace

Launch find_launch(const std::function<const char*(const char*)>& variable) {
  const char* alone = variable("VARVE_ALONE");
  if (alone != nullptr && *alone != '\0' && std::string_view(alone) != "0") return {};
  for (const LauncherVariables& launcher : kLaunchers) {
    const std::optional<uint32_t> count = parse_count(variable(launcher.count));
    const std::optional<uint32_t> process = parse_count(variable(launcher.process));
    if (count && process && *process < *count) return {*count, *process};
  }
  return {};
}

Launch find_launch() {
  return find_launch([](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace varve::cli
