#pragma once

#include <memory>

#include "varve/communicator.h"

namespace varve {

/// MPI for a program of ours, from its start to its end; a program of the user's starts it itself.
class MpiProgram {
 public:
  /// Collective. Once in a process.
  static Result<std::unique_ptr<MpiProgram>> start();
  /// Collective: waits for all.
  ~MpiProgram();
  MpiProgram(const MpiProgram&) = delete;
  MpiProgram& operator=(const MpiProgram&) = delete;

  /// All processes.
  Communicator& ranks() { return *ranks_; }
  /// Ends all processes at once.
  [[noreturn]] void give_up(int code);

 private:
  MpiProgram() = default;
  std::unique_ptr<Communicator> ranks_;
};

}  // namespace varve
