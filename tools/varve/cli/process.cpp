#include "cli/process.h"

#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/huge_pages.h"
#include "core/process.h"
#include "core/status_codec.h"

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
         "  5    already exists\n"
         "  6    busy, try again\n"
         "  75   of run: the program was stopped, and has work left\n"
         "  126  of run: the program cannot be executed\n"
         "  127  of run: there is no such program\n"
         "  130  interrupted\n";
}

namespace {
std::atomic<bool> signal_came{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may not wait");

extern "C" void note_signal(int) { signal_came.store(true, std::memory_order_relaxed); }
}  // namespace

void note_interrupts() {
  for (int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    if (::sigaction(number, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = note_signal;
    // System calls of the engine go on; the handler is gone after one call.
    action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
    sigemptyset(&action.sa_mask);
    ::sigaction(number, &action, nullptr);
  }
}

bool interrupted() { return signal_came.load(std::memory_order_relaxed); }

void hold_standard_streams() {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) >= 0) continue;
    // The lowest free number is given, which is this one. Opened the wrong way round, so that its use fails.
    if (::open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) return;
  }
}

Status failed_standard_output(int error_number) {
  const Status failed = Status::from_errno(error_number, "write to standard output", {});
  return {failed.code(), std::string(failed.message()), {}, "send the output to where it can be written"};
}

namespace {
/// What most commands use at most.
constexpr size_t kHeapBytes = 64 << 20;

/// Has the heap's address space reserved, and asks for huge pages in it: a small save spends a fifth of its time on the
/// first touches of small ones.
void reserve_heap() {
  const auto begin = reinterpret_cast<uintptr_t>(::sbrk(0));
  ::mallopt(M_TOP_PAD, kHeapBytes);
  void* volatile block = std::malloc(1 << 20);  // volatile: compilers leave out a malloc() that only free() sees
  std::free(block);
  ::mallopt(M_TOP_PAD, 1 << 20);
  const auto end = reinterpret_cast<uintptr_t>(::sbrk(0));
  const uintptr_t first = (begin + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  const uintptr_t last = end / kHugePageBytes * kHugePageBytes;
  if (first < last) (void)::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
}
}  // namespace

void keep_freed_memory() {
#ifdef __GLIBC__
  ::mallopt(M_MMAP_THRESHOLD, 8 << 20);  // larger blocks are rare, and go back at once
  ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
  ::mallopt(M_ARENA_MAX, 1);  // what one thread frees, another takes; blocks are large, so that nobody waits for long
  reserve_heap();
#endif
}

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
