#include "cli/background.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "core/status_codec.h"
#include "core/unique_fd.h"

namespace varve::cli {

namespace {
Status leave_terminal() {
  const UniqueFd nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!nothing.valid()) return Status::from_errno(errno, "open", "/dev/null");
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::dup2(nothing.get(), descriptor) < 0) return Status::from_errno(errno, "redirect", "standard streams");
  }
  return {};
}

/// Tells the waiting process how it went.
void tell(const UniqueFd& to, const Status& outcome) {
  const ByteVector message = encode_status(outcome);
  size_t sent = 0;
  while (sent < message.size()) {
    const ssize_t part = ::write(to.get(), message.data() + sent, message.size() - sent);
    if (part < 0 && errno == EINTR) continue;
    if (part <= 0) return;  // nobody waits any more
    sent += static_cast<size_t>(part);
  }
}

Status hear(const UniqueFd& from) {
  ByteVector message;
  std::byte buffer[4096];
  for (;;) {
    const ssize_t got = ::read(from.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    message.insert(message.end(), buffer, buffer + got);
  }
  if (message.empty()) return Status::internal("the process in the background has died");
  Status outcome;
  VARVE_TRY(decode_status(message, outcome));
  return outcome;
}
}  // namespace

Status run_in_background(const std::function<Status(const std::function<Status()>& ready)>& work) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Status::from_errno(errno, "make", "a pipe");
  UniqueFd reading(ends[0]), writing(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return Status::from_errno(errno, "fork", "a process for the background");
  if (child > 0) {
    writing.reset();
    return hear(reading);
  }
  reading.reset();
  ::setsid();
  // At once: what `work` starts shall not keep the streams of whoever waits for this program.
  if (const Status left = leave_terminal(); !left.ok()) {
    tell(writing, left);
    ::_exit(EXIT_FAILURE);
  }
  bool told = false;
  const Status ended = work([&]() -> Status {
    if (::chdir("/") != 0) return Status::from_errno(errno, "go to", "/");
    tell(writing, {});
    told = true;
    writing.reset();
    return {};
  });
  if (!told) tell(writing, ended);
  // Not exit(): what the parent has not printed yet is the parent's to print.
  ::_exit(ended.ok() ? EXIT_SUCCESS : EXIT_FAILURE);
}

}  // namespace varve::cli
