#include "cli/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

namespace varve::cli {

void hold_standard_streams() {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) >= 0) continue;
    // The lowest free number is given, which is this one. Opened the wrong way round, so that its use fails.
    if (::open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) return;
  }
}

}  // namespace varve::cli
