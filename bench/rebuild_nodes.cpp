// How long it takes to protect a set of node-local stores, and to rebuild one node that was lost: nodes are threads of
// this process, each with a store of its own below a folder of this machine, which share its processors.
//
//   rebuild_nodes [FOLDER [MEBIBYTES_OF_A_NODE [SCHEME...]]]
//
// Prints JSON: for each scheme, with as few nodes as it needs, seconds and MB/s. The rate of protecting is that of all
// nodes' data; the rate of rebuilding is that of the lost node's files, its redundancy file among them. `rebuild` looks
// at what is there by names and lengths, `rebuild_reading` reads everything first.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>
#include <thread>

#include "core/unique_id.h"
#include "redundancy/node_redundancy.h"
#include "store/test_sets.h"

namespace varve {
namespace {

const SetName kSet{"bench", 1};
constexpr size_t kChunkBytes = 64_KiB, kPackChunks = 64;

[[noreturn]] void give_up(const Status& status) {
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  std::exit(1);
}
void check(const Status& status) {
  if (!status.ok()) give_up(status);
}
template <class T>
T value_of(Result<T> result) {
  check(result.status());
  return std::move(result).value();
}

/// A store with one set of so many bytes, which do not shrink.
void fill_store(const NodePlace& place, uint64_t bytes, uint64_t seed) {
  check(Store::create(*place.fs, place.path));
  const auto store = value_of(Store::open(*place.fs, place.path));
  test::SetMaker maker(*store);
  std::mt19937_64 random(seed);
  std::vector<ByteVector> chunks(kPackChunks, ByteVector(kChunkBytes));
  Leaf leaf;
  std::vector<Reference> references;
  for (uint64_t at = 0; at < bytes; at += kPackChunks * kChunkBytes) {
    for (ByteVector& chunk : chunks) {
      for (size_t i = 0; i < chunk.size(); i += 8) store_le<uint64_t>(chunk.data() + i, random());
    }
    references.push_back({static_cast<uint32_t>(leaf.packs.size()), 0, kPackChunks * kChunkBytes});
    leaf.packs.push_back(maker.pack(chunks));
  }
  leaf.files.push_back(test::SetMaker::plain_file("data", std::move(references)));
  check(maker.commit(kSet, maker.root({maker.leaf(leaf)})));
}

/// The nodes of one scheme.
class Nodes {
 public:
  Nodes(const std::string& folder, const std::string& scheme, uint64_t bytes)
      : redundancy_(value_of(Redundancy::parse(scheme))), folder_(folder) {
    for (uint32_t node = 0; node < redundancy_.nodes_min(); ++node) {
      places_.push_back({&posix_file_system(), join_path(folder, std::to_string(node)), std::to_string(node)});
      fill_store(places_.back(), bytes, node);
    }
  }
  ~Nodes() { std::filesystem::remove_all(folder_); }
  Nodes(const Nodes&) = delete;
  Nodes& operator=(const Nodes&) = delete;

  uint32_t count() const { return static_cast<uint32_t>(places_.size()); }
  uint64_t data_bytes = 0;  ///< of all nodes
  uint64_t node_bytes = 0;  ///< of one, with its redundancy file

  double protect() {
    return seconds_of([this](Communicator& leaders) {
      const ProtectionReport report = value_of(protect_set(leaders, places_[leaders.rank()], kSet, redundancy_));
      if (leaders.rank() != 0) return;
      data_bytes = report.protected_bytes;
      node_bytes = (report.protected_bytes + report.parity_bytes) / count();
    });
  }
  /// The first node loses its folder.
  double rebuild(bool read_everything) {
    std::filesystem::remove_all(places_[0].path);
    return seconds_of([this, read_everything](Communicator& leaders) {
      RestoreLostOptions options;
      options.read_everything = read_everything;
      for (const RestoredSet& set : value_of(restore_lost(leaders, places_[leaders.rank()], options)))
        check(set.status);
    });
  }

 private:
  double seconds_of(const std::function<void(Communicator&)>& act) const {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<std::thread> threads;
    for (auto& ranks : make_thread_communicators(count())) {
      threads.emplace_back([&act, leaders = std::move(ranks)] { act(*leaders); });
    }
    for (std::thread& thread : threads) thread.join();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  const Redundancy redundancy_;
  const std::string folder_;
  std::vector<NodePlace> places_;
};

std::string measure(const std::string& folder, const std::string& scheme, uint64_t bytes) {
  const std::string own = join_path(folder, "rebuild_nodes-" + value_of(UniqueId::random()).hex());
  check(posix_file_system().create_directory(own));
  Nodes nodes(own, scheme, bytes);
  const auto figures = [](const char* name, double seconds, uint64_t moved) {
    return fmt::format("\"{}\": {{\"seconds\": {:.3f}, \"mb_per_s\": {:.0f}}}", name, seconds,
                       static_cast<double>(moved) / 1e6 / seconds);
  };
  const double protect = nodes.protect(), reading = nodes.rebuild(true), quick = nodes.rebuild(false);
  return fmt::format("{{\"scheme\": \"{}\", \"nodes\": {}, \"node_bytes\": {}, {}, {}, {}}}", scheme, nodes.count(),
                     nodes.node_bytes, figures("protect", protect, nodes.data_bytes),
                     figures("rebuild", quick, nodes.node_bytes),
                     figures("rebuild_reading", reading, nodes.node_bytes));
}

int run(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "/dev/shm";
  const uint64_t bytes = (argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1024) * 1_MiB;
  std::vector<std::string> schemes(argv + std::min(argc, 3), argv + argc);
  if (schemes.empty()) schemes = {"partner", "xor:4", "rs:4+2"};
  std::string separator = "[";
  for (const std::string& scheme : schemes) {
    std::printf("%s%s", separator.c_str(), measure(folder, scheme, bytes).c_str());
    std::fflush(stdout);
    separator = ",\n ";
  }
  std::printf("]\n");
  return 0;
}

}  // namespace
}  // namespace varve

int main(int argc, char** argv) { return varve::run(argc, argv); }
