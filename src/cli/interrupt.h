#pragma once

namespace varve::cli {

/// Lets SIGINT, SIGTERM and SIGHUP only be noted from now on, so that the program can end in good order; a second one
/// ends it at once. A signal that the program was started to ignore stays ignored.
void note_interrupts();

/// Whether such a signal came.
bool interrupted();

}  // namespace varve::cli
