#pragma once

#include <functional>
#include <string>

#include "varve/communicator.h"

namespace varve {

/// Ranks of one kind, for the tests that all communicators pass (communicator_contract.cpp, which every program that
/// tests a communicator has among its sources).
struct TestRanks {
  std::string name;
  /// Runs the function on every rank of this process, each on a thread of its own, and returns when all have ended.
  std::function<void(const std::function<void(Communicator&)>&)> run;
};

/// All kinds that the program at hand tests: it defines this.
std::vector<TestRanks> ranks_under_test();

}  // namespace varve
