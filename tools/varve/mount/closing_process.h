#pragma once

#include <sys/types.h>

#include <string_view>

#include "mount/mounted_folder.h"

namespace varve {

/// Whether a thread that is closing a file does so since its process is being ended by a signal: nobody knows whether
/// the program had written all that it wanted to. One that ends by itself, and leaves its files to the kernel to close,
/// had. `thread` is as the kernel tells it of a request, which the thread waits for; 0 is one that we cannot see.
ClosedBy who_closes(pid_t thread);

/// The same by what /proc/THREAD/stat says. `knows_exit_code`: it says the process's exit code, too, instead of a 0 as
/// it does to who may not know it. Else what the thread's flags say counts, which is the same but for a program of
/// several threads that ends by itself.
ClosedBy who_closes_by_stat(std::string_view stat, bool knows_exit_code);

}  // namespace varve
