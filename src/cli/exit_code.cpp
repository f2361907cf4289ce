#include "cli/exit_code.h"

namespace varve::cli {

ExitCode exit_code_of(StatusCode code) {
  switch (code) {
    case StatusCode::ok: return ExitCode::success;
    case StatusCode::invalid_argument: return ExitCode::usage;
    case StatusCode::not_found: return ExitCode::not_found;
    case StatusCode::already_exists: return ExitCode::already_exists;
    case StatusCode::corrupt: return ExitCode::damaged;
    case StatusCode::busy: return ExitCode::busy;
    case StatusCode::cancelled: return ExitCode::interrupted;
    case StatusCode::io_error:
    case StatusCode::no_space:
    case StatusCode::permission_denied:
    case StatusCode::unsupported:
    case StatusCode::resource_limit:
    case StatusCode::internal: return ExitCode::failure;
  }
  return ExitCode::failure;
}

std::string_view exit_code_help() {
  return "Exit codes:\n"
         "  0    success\n"
         "  1    the system failed (input or output, no space, permission)\n"
         "  2    wrong usage\n"
         "  3    not found (store, set, file)\n"
         "  4    damage was found\n"
         "  5    exists already\n"
         "  6    busy, try again\n"
         "  130  interrupted\n";
}

}  // namespace varve::cli
