#include "session_handle.h"
#include "sized_struct.h"

namespace varve::c_binding {
namespace {

void say(std::optional<std::string>& option, const char* text) {
  if (text != nullptr) option = text;
}

template <class Number>
void say(std::optional<Number>& option, Number number) {
  if (number != Number{}) option = number;
}

Status say(std::optional<bool>& option, std::string_view name, int choice) {
  switch (choice) {
    case VARVE_DEFAULT: return {};
    case VARVE_YES: option = true; return {};
    case VARVE_NO: option = false; return {};
    default: return Status::invalid_argument("an option is no varve_choice", std::string(name));
  }
}

Status say(std::optional<WhenBusy>& option, int when_busy) {
  switch (when_busy) {
    case VARVE_BUSY_DEFAULT: return {};
    case VARVE_BUSY_WAIT: option = WhenBusy::wait; return {};
    case VARVE_BUSY_SKIP: option = WhenBusy::skip; return {};
    case VARVE_BUSY_TWO_SLOTS: option = WhenBusy::two_slots; return {};
    case VARVE_BUSY_AUTOMATIC: option = WhenBusy::automatic; return {};
    default: return Status::invalid_argument("an option is no varve_when_busy", "when_busy");
  }
}

}  // namespace

Result<SessionOptions> session_options(const varve_options* theirs) {
  SessionOptions said;
  if (theirs == nullptr) return said;
  VARVE_ASSIGN(const varve_options options, read_struct(*theirs, "varve_options"));
  say(said.options_file, options.options_file);
  say(said.store, options.store);
  say(said.levels, options.levels);
  say(said.job, options.job);
  say(said.group, options.group);
  say(said.effort, options.effort);
  say(said.codec, options.codec);
  say(said.scheme, options.scheme);
  say(said.threads, options.threads);
  say(said.memory_bytes, options.memory_bytes);
  say(said.every_steps, options.every_steps);
  say(said.every_seconds, options.every_seconds);
  say(said.mean_time_between_failures, options.mean_time_between_failures);
  VARVE_TRY(say(said.when_busy, options.when_busy));
  say(said.keep_last, options.keep_last);
  say(said.write_bytes_per_second, options.write_bytes_per_second);
  say(said.stop_after_seconds, options.stop_after_seconds);
  say(said.stop_file, options.stop_file);
  VARVE_TRY(say(said.stop_on_signals, "stop_on_signals", options.stop_on_signals));
  VARVE_TRY(say(said.low_priority, "low_priority", options.low_priority));
  say(said.shared_memory, options.shared_memory);
  say(said.wait_limit, options.wait_limit);
  say(said.key_file, options.key_file);
  say(said.s3_endpoint, options.s3_endpoint);
  say(said.snapshot_folder, options.snapshot_folder);
  VARVE_TRY(say(said.take_over, "take_over", options.take_over));
  VARVE_TRY(say(said.variables_may_change, "variables_may_change", options.variables_may_change));
  VARVE_TRY(say(said.print_warnings, "print_warnings", options.print_warnings));
  say(said.metrics_file, options.metrics_file);
  say(said.timeline, options.timeline);
  return said;
}

}  // namespace varve::c_binding
