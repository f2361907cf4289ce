#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/process.h"
#include "varve/communicator.h"
#include "varve/status.h"

namespace varve::cli {

/// The processes that run one command together; one, unless a launcher has started several.
class ProgramRanks {
 public:
  virtual ~ProgramRanks() = default;
  /// Called before a command that several processes can do together. May turn this process into another program.
  virtual Status prepare(const std::vector<std::string>& arguments) = 0;
  /// Finds the others; what forks has to be done before. Collective. Lives as long as this object.
  virtual Result<Communicator*> join() = 0;
  /// Ends all processes, once they have been joined: this one cannot tell the others in good order that it failed.
  virtual void give_up(ExitCode code) = 0;
};

/// Runs what the arguments (without the program's name) ask for.
ExitCode run_program(const std::vector<std::string>& arguments, ProgramRanks& ranks);

}  // namespace varve::cli
