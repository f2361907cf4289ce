#pragma once

#include <functional>
#include <string_view>

#include "varve/status.h"

namespace varve::cli {

/// What the program returns to whoever started it. Stable: scripts rely on it (docs/GUIDE.md, "Exit codes").
enum class ExitCode : int {
  success = 0,
  failure = 1,            ///< the system failed: input or output, no space, permission, memory, a missing feature
  usage = 2,              ///< the command line makes no sense
  not_found = 3,          ///< a store, set, file or variable that was named does not exist
  damaged = 4,            ///< stored bytes are not what they should be
  already_exists = 5,     ///< what was to be created exists
  busy = 6,               ///< somebody else is in the way: trying again may help
  cannot_execute = 126,   ///< of run: there is such a program, which cannot be executed (as shells have it)
  no_such_program = 127,  ///< of run
  interrupted = 130,      ///< stopped by a signal, in good order
};

ExitCode exit_code_of(StatusCode code);

/// A table of the codes, for the end of the help.
std::string_view exit_code_help();

/// Lets SIGINT, SIGTERM and SIGHUP only be noted from now on, so that the program can end in good order; a second one
/// ends it at once. A signal that the program was started to ignore stays ignored.
void note_interrupts();

/// Whether such a signal came.
bool interrupted();

/// Fills the places of standard streams that the program was started without, so that no file of a store gets one of
/// them, and what is printed with it. What is written there fails as before (EBADF). Call before anything is opened.
void hold_standard_streams();

/// What a failed write to standard output means. The disk of the store is another matter.
Status failed_standard_output(int error_number);

/// Lets malloc keep what it has taken from the system until the end of the program, for all threads alike: a save goes
/// through many buffers of about a megabyte, and to take each anew from the system costs more than to fill it.
void keep_freed_memory();

/// Has `work` done by a process of its own that goes on when this one ends, without a terminal and its streams. Returns
/// when that calls `ready`, from where on it is in the root folder, or what made it fail before. The process must have
/// no threads.
Status run_in_background(const std::function<Status(const std::function<Status()>& ready)>& work);

}  // namespace varve::cli
