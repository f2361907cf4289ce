#include "sim/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace varve::sim {

namespace {
UniqueId draw_id(Random& random) {
  UniqueId id;
  for (std::byte& byte : id.bytes) byte = static_cast<std::byte>(random.below(256));
  return id;
}

void prepare(Disk& disk, const std::string& folder) {
  disk.plain().create_directory(folder).ignore("it is a disk in memory");
  disk.plain().sync_directory("/").ignore("it is a disk in memory");
}

void empty_folder(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) std::filesystem::remove_all(entry.path());
}
}  // namespace

World::World(Simulator& simulator, uint32_t node_count, uint32_t server_count, const std::string& scratch)
    : simulator_(simulator),
      shared_(std::make_unique<Disk>(simulator, "shared")),
      files_([this](const std::string& path) { return disk_of(path, *simulator_.current_process().machine); },
             [this] { return disks(); }) {
  director_ = {"-", draw_id(simulator.random())};
  nodes_.resize(node_count);
  for (uint32_t i = 0; i < node_count; ++i) {
    Node& node = nodes_[i];
    node.machine = {fmt::format("n{}", i), draw_id(simulator.random())};
    node.disk = std::make_unique<Disk>(simulator, node.machine.name);
    node.machine.memory = fmt::format("{}/{}", scratch, node.machine.name);
    std::filesystem::create_directories(node.machine.memory);
  }
  for (uint32_t i = 0; i < server_count; ++i) {
    servers_.push_back(std::make_unique<Disk>(simulator, fmt::format("server{}", i)));
    prepare(*servers_.back(), fmt::format("/server{}", i));
  }
  prepare(*shared_, "/shared");
  for (Node& node : nodes_) prepare(*node.disk, "/local");
}

World::~World() {
  for (const Node& node : nodes_) std::filesystem::remove_all(node.machine.memory);
}

std::vector<Disk*> World::disks() {
  std::vector<Disk*> disks;
  for (Node& node : nodes_) disks.push_back(node.disk.get());
  disks.push_back(shared_.get());
  for (const auto& server : servers_) disks.push_back(server.get());
  return disks;
}

Disk* World::disk_of(const std::string& path, const Machine& machine) {
  for (uint32_t i = 0; i < servers_.size(); ++i) {
    if (path.starts_with(fmt::format("/server{}", i))) return servers_[i].get();
  }
  if (path.starts_with("/shared")) return shared_.get();
  if (!path.starts_with("/local")) return nullptr;
  const auto node = std::find_if(nodes_.begin(), nodes_.end(), [&](const Node& n) { return &n.machine == &machine; });
  return node == nodes_.end() ? nullptr : node->disk.get();
}

void World::lose_power(Node& node, const std::vector<Process*>& processes, const CrashPolicy& policy) {
  simulator_.tell(fmt::format("{} loses power", node.machine.name));
  for (Process* process : processes) simulator_.kill(*process);
  node.disk->lose_power(policy);
  empty_folder(node.machine.memory);
  node.machine.boot = draw_id(simulator_.random());
}

void World::lose_disk(Node& node, const std::vector<Process*>& processes) {
  lose_power(node, processes, {CrashPolicy::Kind::drop_unsynced, 0});
  simulator_.tell(fmt::format("the disk of {} is empty", node.machine.name));
  node.disk->replace();
  prepare(*node.disk, "/local");
}

void World::lose_shared(const std::string& path) {
  Disk& disk = *disk_of(path, director_);
  simulator_.tell(fmt::format("{} is empty", disk.name()));
  disk.replace();
  prepare(disk, path.substr(0, path.find('/', 1)));
}

void World::end_faults() {
  simulator_.tell("faults end");
  for (Disk* disk : disks()) {
    disk->faults = {};
    disk->capacity = UINT64_MAX;
    disk->full_for = nullptr;
    disk->failing_read = 0;
    disk->slowness = std::min(disk->slowness, 10.0);
    disk->away_until = {};
  }
}

}  // namespace varve::sim
