#pragma once

#include <string>
#include <vector>

#include "runtime/ranks.h"

namespace varve::test {

/// A machine of several nodes with a store each, and places that all of them see. Ranks are threads.
struct Cluster {
  static constexpr size_t kCells = 5'000;  ///< of each rank's model

  SessionPlace place;
  std::string local = place.folder / "local", far = place.folder / "far", farther = place.folder / "farther";
  std::vector<std::string> nodes{"a", "b", "c"};
  uint32_t node_ranks = 2;
  std::string group = "node";
  std::string codec = "store";
  std::string key_file;
  FileSystem* files = &posix_file_system();
  std::function<FileSystem&(const std::string& node)> files_of_node;  ///< in place of it

  uint32_t rank_count() const { return static_cast<uint32_t>(nodes.size()) * node_ranks; }
  std::string node_path(const std::string& node) const { return local + "/node-" + node; }

  Result<std::unique_ptr<RunSession>> open(uint32_t rank, std::unique_ptr<Communicator> ranks,
                                           const std::string& levels) const;
  /// Runs `body` on all ranks, each with a session and a model that is protected.
  void run(const std::string& levels, const std::function<void(uint32_t rank, RunSession&, Model&)>& body) const;
  /// Steps first to last, each with a checkpoint that is complete in the nearest store before the next one.
  static void go(RunSession& session, Model& model, uint64_t first, uint64_t last);
  static void finish(RunSession& session);
  /// A whole run from the begin.
  void run_to(const std::string& levels, uint64_t last) const;
  /// Restarts, which has to be from `step`, and goes on to `last`. Returns what rank 0 was told.
  std::string restart_from(const std::string& levels, uint64_t step, uint64_t last) const;
  Status restart_status(const std::string& levels) const;
  static std::string words(const std::vector<Status>& warnings);
};

std::unique_ptr<Store> store_at(const std::string& path);
std::vector<uint64_t> steps_at(const std::string& path);
void drop(const std::string& path, uint64_t step);
void expect_whole(const std::string& path);

}  // namespace varve::test
