#pragma once

#include <sys/types.h>

#include <string_view>

namespace varve {

/// Whether a thread that is closing a file does so since its process is being ended by a signal: nobody knows whether
/// the program had written all that it wanted to. One that ends by itself, and leaves its files to the kernel to close,
/// had. `thread`, `user` and `group` are as the kernel tells them of a request, which the thread waits for; 0 is a
/// thread that we cannot see. What cannot be told counts as ended by a signal.
bool is_closed_by_signal(pid_t thread, uid_t user, gid_t group);

/// The same by what /proc/THREAD/stat says. `knows_exit_code`: it says the process's exit code, too, as it does to who
/// is root or the process's user. Else what the thread's flags say counts, which is the same but for a program of
/// several threads that ends by itself.
bool is_ended_by_signal(std::string_view stat, bool knows_exit_code);

}  // namespace varve
