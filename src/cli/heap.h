#pragma once

namespace varve::cli {

/// Lets malloc keep what it has taken from the system until the end of the program, for all threads alike: a save goes
/// through many buffers of about a megabyte, and to take each anew from the system costs more than to fill it.
void keep_freed_memory();

}  // namespace varve::cli
