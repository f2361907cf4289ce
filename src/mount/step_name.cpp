#include "mount/step_name.h"

#include "aggregate/save.h"
#include "store/set_record.h"

namespace varve {

namespace {
constexpr std::string_view kTemporaryEnd = ".tmp";
}  // namespace

std::optional<StepName> parse_step_name(std::string_view name) {
  if (!check_job_name(name).ok()) return std::nullopt;
  StepName parsed;
  parsed.temporary = name.ends_with(kTemporaryEnd);
  const std::string_view base = parsed.temporary ? name.substr(0, name.size() - kTemporaryEnd.size()) : name;
  const std::optional<uint64_t> step = last_number(base);
  if (!step) return std::nullopt;
  parsed.step = *step;
  parsed.canonical = std::to_string(*step) == name;
  return parsed;
}

}  // namespace varve
