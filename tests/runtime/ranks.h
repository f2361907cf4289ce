#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/bytes.h"
#include "core/cell_box.h"
#include "runtime/run_session.h"
#include "sets/folders.h"
#include "varve/session.h"

namespace varve::test {

/// Where the sessions of a test keep what they keep.
struct SessionPlace {
  TempFolder folder;
  std::string store = folder / "store";
  std::string memory = folder / "memory";
  SessionPlace();

  /// Options that nothing outside the test has a say in.
  SessionOptions options() const;
  /// Files that are left in shared memory.
  size_t memory_files() const;
};

/// Calls `body` for each rank, in a thread of its own, and returns when all have returned.
void run_ranks(uint32_t rank_count, const std::function<void(uint32_t rank, std::unique_ptr<Communicator>)>& body);

/// Cuts an array into so many boxes of random size, of which some may be empty.
std::vector<CellBox> cut(const std::vector<uint64_t>& cells, size_t box_count, std::mt19937& random);
/// The same for ranks, in no order.
std::vector<CellBox> divide(const std::vector<uint64_t>& cells, uint32_t rank_count, std::mt19937& random);

/// Runs `body` in a process of its own, which is killed then.
void run_and_kill(const std::function<void()>& body);

/// A deterministic computation: each step depends on all before.
struct Model {
  std::vector<double> field;
  uint64_t sum = 0;
  Model(uint32_t rank, size_t cells);
  void step(uint64_t number);
  bool operator==(const Model&) const = default;
};
/// The model after so many steps.
Model model_at(uint32_t rank, size_t cells, uint64_t steps);

Status protect(Session& session, Model& model);
Status protect(RunSession& session, Model& model);

/// A session whose stores are in `files`, and that hears of nothing outside the test.
std::unique_ptr<RunSession> open_on(FileSystem& files, std::unique_ptr<Communicator> ranks,
                                    const SessionOptions& options);

/// Runs a session of one rank, whose model has so many cells, in a process of its own, which dies without an end: the
/// set of step 1 is in the store, `step` is in memory alone.
void die_with_a_snapshot(const SessionOptions& options, size_t cells, uint64_t step = 2);
inline void die_with_a_snapshot(const SessionPlace& place, size_t cells, uint64_t step = 2) {
  die_with_a_snapshot(place.options(), cells, step);
}

}  // namespace varve::test
