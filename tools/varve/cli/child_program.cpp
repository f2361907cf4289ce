#include "cli/child_program.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "core/process.h"

namespace varve::cli {

HeldSignals::HeldSignals() {
  sigemptyset(&held_);
  for (const int number : {SIGTERM, SIGUSR1, SIGINT, SIGHUP, SIGCHLD}) sigaddset(&held_, number);
  ::sigprocmask(SIG_BLOCK, &held_, &before_);
  // Where it is ignored, as some launchers leave it, nobody is told of the end of a child.
  ::signal(SIGCHLD, SIG_DFL);
}

void HeldSignals::give_back() const { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }

int HeldSignals::wait() const {
  for (;;) {
    const int number = ::sigwaitinfo(&held_, nullptr);
    if (number > 0) return number;
  }
}

namespace {
constexpr int kShellSignalBase = 128;

/// In the child: becomes the program, or says by the pipe why not.
[[noreturn]] void become(const ChildProgram& child, const HeldSignals& signals, int failure_pipe) {
  for (const auto& [name, value] : child.environment) {
    if (value) {
      ::setenv(name.c_str(), value->c_str(), 1);  // NOLINT(concurrency-mt-unsafe): it is alone
    } else {
      ::unsetenv(name.c_str());  // NOLINT(concurrency-mt-unsafe)
    }
  }
  std::vector<char*> arguments;
  for (const std::string& word : child.command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  signals.give_back();
  ::execvp(arguments.front(), arguments.data());
  const int failure = errno;
  static_cast<void>(!::write(failure_pipe, &failure, sizeof failure));
  ::_exit(127);
}

/// Whether the child has become the program.
Status await_start(const UniqueFd& failure_pipe, pid_t child, const std::string& program) {
  int failure = 0;
  ssize_t got = 0;
  do {
    got = ::read(failure_pipe.get(), &failure, sizeof failure);
  } while (got < 0 && errno == EINTR);
  if (got != sizeof failure) return {};
  ::waitpid(child, nullptr, 0);
  return Status::from_errno(failure, "start", program);
}

std::optional<int> ended(pid_t child) {
  int status = 0;
  if (::waitpid(child, &status, WNOHANG) != child) return std::nullopt;
  return WIFEXITED(status) ? WEXITSTATUS(status) : kShellSignalBase + WTERMSIG(status);
}
}  // namespace

Result<ChildEnd> run_child(const ChildProgram& child, const HeldSignals& signals) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Status::from_errno(errno, "make", "a pipe");
  const UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  const pid_t process = ::fork();
  if (process < 0) return Status::from_errno(errno, "fork", child.command.front());
  if (process == 0) become(child, signals, writing.get());
  writing.reset();
  ChildEnd end;
  end.not_started = await_start(reading, process, child.command.front());
  if (!end.not_started.ok()) return end;
  for (;;) {
    const int number = signals.wait();
    if (number == SIGCHLD) {
      const std::optional<int> code = ended(process);
      if (!code) continue;
      end.code = *code;
      return end;
    }
    if (number == SIGINT) {
      end.interrupted = true;
      continue;
    }
    const bool asks = number == SIGTERM || number == SIGUSR1;
    ::kill(process, asks ? child.stop_signal : number);  // its time runs from now on
    if (asks && !end.asked_by) {
      end.asked_by = number == SIGTERM ? "SIGTERM" : "SIGUSR1";
      if (child.note_stop) child.note_stop(end.asked_by->c_str());
    }
  }
}

}  // namespace varve::cli
