#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sim/disk.h"
#include "sim/simulator.h"

namespace varve::sim {

/// One machine of the cluster: a disk of its own, and shared memory, which loses all with the power.
struct Node {
  Machine machine;
  std::unique_ptr<Disk> disk;
};

/// The cluster: nodes, a parallel file system that all see, and servers behind a network. What programs see as files:
///   /local/...   the disk of the node that asks
///   /shared/...  the parallel file system
///   /serverN/... the store of a server, over the network
class World {
 public:
  World(Simulator& simulator, uint32_t node_count, uint32_t server_count, const std::string& scratch);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  Simulator& simulator() { return simulator_; }
  std::vector<Node>& nodes() { return nodes_; }
  Disk& shared() { return *shared_; }
  std::vector<std::unique_ptr<Disk>>& servers() { return servers_; }
  SimulatedFiles& files() { return files_; }
  Machine& director() { return director_; }
  std::vector<Disk*> disks();
  /// The disk that a path lies on for a process of `machine`.
  Disk* disk_of(const std::string& path, const Machine& machine);

  /// All processes of the node are killed, its shared memory is gone, and its disk has what was durable.
  void lose_power(Node& node, const std::vector<Process*>& processes, const CrashPolicy& policy);
  /// The same, and its disk is replaced by an empty one.
  void lose_disk(Node& node, const std::vector<Process*>& processes);
  /// What all see of a path is empty.
  void lose_shared(const std::string& path);
  /// Disks work again, have room, and are reached.
  void end_faults();

 private:
  Simulator& simulator_;
  Machine director_;
  std::vector<Node> nodes_;
  std::unique_ptr<Disk> shared_;
  std::vector<std::unique_ptr<Disk>> servers_;
  SimulatedFiles files_;
};

}  // namespace varve::sim
