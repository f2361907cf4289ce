// A session that does not end in good order.
//
//   end_program FOLDER MODE
//
// FOLDER/store and FOLDER/memory are what the session uses, which is of the job "end". It saves steps 1 and 2. MODE:
//   fork          between them, a child that was forked leaves by exit(), which ends what is static: the session, too
//   fork_calls    so it does after it has made every call
//   fork_signal   a child that was forked gets SIGTERM, which is to end it
//   leave         of another job, "left": exit() while its one checkpoint is being saved, by a session that nobody ends
//   finalize      with MPI: MPI_Finalize() comes before the session's end, which is that of the program
//   finalize_two  the same with two sessions
// Ends with 0 if all calls did what they should; else it says which did not.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "varve/error.h"
#include "varve/session.h"
#ifdef END_PROGRAM_WITH_MPI
#include "varve/mpi.h"
#endif

namespace {

std::string folder;
std::vector<double> cells(100'000, 1.0);
// Destroyed after main(), and after MPI.
std::optional<varve::Session> session, other_session;

void check(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "process %d: not so: %s\n", static_cast<int>(::getpid()), what);
  std::_Exit(1);
}

std::unique_ptr<varve::Communicator> ranks() {
#ifdef END_PROGRAM_WITH_MPI
  return varve::or_throw(varve::make_mpi_communicator(MPI_COMM_WORLD));
#else
  return varve::make_single_communicator();
#endif
}

std::optional<varve::Session> open(const std::string& job) {
  varve::SessionOptions options;
  options.store = folder + "/store";
  options.shared_memory = folder + "/memory";
  options.memory_bytes = 64 << 20;
  options.job = job;
  std::optional<varve::Session> opened = varve::or_throw(varve::Session::open(ranks(), options));
  varve::or_throw(opened->protect("cells", cells));
  varve::or_throw(opened->restart());
  return opened;
}

void make_every_call() {
  const auto refuses = [](const varve::Status& status, const char* what) {
    check(status.code() == varve::StatusCode::invalid_argument, what);
    check(status.message().find("forked") != std::string_view::npos, what);
  };
  double number = 0;
  refuses(session->protect("number", number), "protect() of a number");
  refuses(session->protect("cells", cells), "protect() of a vector");
  refuses(session->protect("cells", std::span(cells)), "protect() of an array");
  refuses(session->unprotect("cells"), "unprotect()");
  refuses(session->make_grid<double>("grid", 10).status(), "make_grid()");
  refuses(session->lend("cells", std::span(cells)).status(), "lend()");
  refuses(session->restart().status(), "restart()");
  refuses(session->checkpoint(7, varve::Persistence::now), "checkpoint()");
  refuses(session->wait(), "wait()");
  refuses(session->finish(), "finish()");
  refuses(session->progress().last_error, "progress()");
  check(!session->due(7) && !session->should_stop(), "nothing is due");
  check(session->warnings().empty() && session->effective_options().empty(), "nothing is told");
  check(session->report().empty() && session->report_json().empty(), "nothing is reported");
}

/// Returns how a child ended, as waitpid() tells it; it has ten seconds.
int fork_and_wait(const std::string& mode) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (mode == "fork_calls") make_every_call();
    if (mode == "fork_signal") {
      ::raise(SIGTERM);
      std::_Exit(3);
    }
    std::exit(0);
  }
  check(child > 0, "a fork");
  int status = 0;
  for (int tries = 0; tries < 1000; ++tries) {
    if (::waitpid(child, &status, WNOHANG) == child) return status;
    ::usleep(10'000);
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  check(false, "the child ends");
  return status;
}

void end_beside_a_child(const std::string& mode) {
  session = open("end");
  varve::or_throw(session->checkpoint(1));
  const int status = fork_and_wait(mode);
  if (mode == "fork_signal") {
    check(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM, "SIGTERM ends the child");
    ::raise(SIGTERM);
    check(session->due(1), "here SIGTERM asks for a checkpoint");
  } else {
    check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ends with 0");
  }
  cells[0] = 2;
  varve::or_throw(session->checkpoint(2));
  varve::or_throw(session->finish());
  check(session->progress().newest_persistent == 2, "step 2 is in the store");
}

[[noreturn]] void leave() {
  cells.resize(4'000'000);
  for (size_t i = 0; i < cells.size(); ++i) cells[i] = 1.0 / static_cast<double>(i + 1);
  auto& left = *new std::optional<varve::Session>(open("left"));
  const std::optional<uint64_t> from = varve::or_throw(left->restart());
  varve::or_throw(left->checkpoint(from.value_or(0) + 1));
  ::usleep(static_cast<useconds_t>(::getpid() % 50) * 2'000);
  std::exit(0);
}

#ifdef END_PROGRAM_WITH_MPI
void end_after_mpi(bool two) {
  session = open("end");
  if (two) other_session = open("other");
  for (uint64_t step = 1; step <= 2; ++step) {
    varve::or_throw(session->checkpoint(step));
    if (two) varve::or_throw(other_session->checkpoint(step));
  }
  MPI_Finalize();
  check(session->progress().newest_persistent == 2, "step 2 is in the store");
  check(session->checkpoint(3).code() == varve::StatusCode::invalid_argument, "the session has ended");
  check(!session->due(3), "nothing is due");
  varve::or_throw(session->finish());
  check(!session->report_json().empty(), "there is a report");
}
#endif

}  // namespace

int main(int argument_count, char** words) {
  if (argument_count != 3) return 2;
  folder = words[1];
  const std::string mode = words[2];
#ifdef END_PROGRAM_WITH_MPI
  int provided = 0;
  MPI_Init_thread(&argument_count, &words, MPI_THREAD_MULTIPLE, &provided);
#endif
  try {
    if (mode == "leave") leave();
    if (mode.starts_with("fork")) end_beside_a_child(mode);
#ifdef END_PROGRAM_WITH_MPI
    if (mode.starts_with("finalize")) {
      end_after_mpi(mode == "finalize_two");
    } else {
      MPI_Finalize();
    }
#endif
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    std::_Exit(1);
  }
  return 0;
}
