#pragma once

#include <csignal>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "varve/status.h"

namespace varve::cli {

/// A program that this one has started, and to which it passes on that it is to stop.
struct ChildProgram {
  std::vector<std::string> command{};  ///< the program and its arguments; it is looked for in $PATH
  /// Changes of the environment: none: the variable is taken away.
  std::map<std::string, std::optional<std::string>> environment{};
  int stop_signal = 0;  ///< what SIGTERM and SIGUSR1 are passed on as
  /// A signal has come that asks for a stop, the first time, and was passed on.
  std::function<void(const char* signal)> note_stop{};
};

/// How it ended.
struct ChildEnd {
  Status not_started{};  ///< why it did not become the program, of which nothing else is known then
  int code = 0;          ///< as a shell has it: what it returned, or 128 and the number of the signal that ended it
  std::optional<std::string> asked_by{};  ///< the signal that asked for a stop, and was passed on
  bool interrupted = false;               ///< from the terminal, which tells the program itself
};

/// Holds back SIGTERM, SIGUSR1, SIGINT, SIGHUP and SIGCHLD, until the process ends: they come by wait() alone. The
/// process must have no threads.
class HeldSignals {
 public:
  HeldSignals();
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  /// As it was before: for a child.
  void give_back() const;
  /// The next one.
  int wait() const;

 private:
  sigset_t held_{}, before_{};
};

/// Starts it, and returns when it has ended. In ChildEnd::not_started, not_found: there is no such program.
Result<ChildEnd> run_child(const ChildProgram& child, const HeldSignals& signals);

}  // namespace varve::cli
