#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/memory_file_system.h"
#include "redundancy/node_redundancy.h"
#include "store/test_sets.h"
#include "store/verify.h"

namespace varve::test {

/// Another communicator without messages, like MPI for one thread.
class CollectiveOnly final : public Communicator {
 public:
  explicit CollectiveOnly(Communicator& inner) : inner_(inner) {}
  uint32_t rank() const override { return inner_.rank(); }
  uint32_t rank_count() const override { return inner_.rank_count(); }
  Result<std::vector<ByteVector>> all_gather(ByteSpan mine) override { return inner_.all_gather(mine); }
  Result<ByteVector> broadcast(ByteSpan roots, uint32_t root) override { return inner_.broadcast(roots, root); }
  Status all_min(std::span<uint64_t> values) override { return inner_.all_min(values); }
  Status all_max(std::span<uint64_t> values) override { return inner_.all_max(values); }
  Status barrier() override { return inner_.barrier(); }
  bool concurrent() const override { return false; }
  Status send(uint32_t, uint32_t, ByteSpan) override { return Status::unsupported("no messages"); }
  Status receive(uint32_t, uint32_t, MutableByteSpan) override { return Status::unsupported("no messages"); }

 private:
  Communicator& inner_;
};

/// All files below a folder with what they hold, by path; `index/` of stores aside, which is disposable.
inline void collect_files(FileSystem& fs, const std::string& path, std::map<std::string, ByteVector>& files) {
  const auto entries = fs.list(path);
  if (!entries.ok()) return;
  for (const DirectoryEntry& entry : *entries) {
    const std::string child = join_path(path, entry.name);
    if (entry.is_directory && entry.name != "index") collect_files(fs, child, files);
    if (!entry.is_directory) files[child] = read_file(fs, child, 1_GiB).value();
  }
}

/// The nodes of a job, each with a disk and a store of its own, for tests.
class Nodes {
 public:
  static std::string path() { return "/local/store"; }

  explicit Nodes(uint32_t count) {
    for (uint32_t node = 0; node < count; ++node) {
      disks_.push_back(empty_disk());
      names_.push_back(std::string(1, static_cast<char>('a' + node)));
      if (!Store::create(fs(node), path()).ok()) std::abort();
    }
  }
  /// With disks of their own. What was not durable stays.
  Nodes copy() const {
    Nodes other;
    other.names_ = names_;
    for (const auto& disk : disks_) other.disks_.push_back(disk->after_crash({CrashPolicy::Kind::keep_all}));
    return other;
  }

  uint32_t count() const { return static_cast<uint32_t>(disks_.size()); }
  MemoryFileSystem& fs(uint32_t node) { return *disks_[node]; }
  const std::string& name(uint32_t node) const { return names_[node]; }
  NodePlace place(uint32_t node) { return {disks_[node].get(), path(), names_[node]}; }

  /// The chunks that node `node` has in a set: some of its own, and `shared` of which earlier sets have some.
  static std::vector<uint64_t> numbers(uint32_t node, uint64_t step) {
    std::vector<uint64_t> numbers = numbers_between(node * 1'000'000, node * 1'000'000 + 5 + node);
    for (uint64_t number = 0; number < 3 + step; ++number) numbers.push_back(node * 1'000'000 + step * 1000 + number);
    return numbers;
  }
  /// Each node saves its part. `number`: SetRecord::number.
  void save(const SetName& set, uint64_t number = 0) {
    for (uint32_t node = 0; node < count(); ++node) {
      const auto store = Store::open(fs(node), path()).value();
      const Status saved = save_numbers(*store, set, numbers(node, set.step), number);
      ASSERT_TRUE(saved.ok()) << saved.to_string();
    }
  }
  /// OK if the node's set is there and has what node `saved_by` saved, and its store is whole in every byte.
  Status check(uint32_t node, const SetName& set, uint32_t saved_by) {
    VARVE_ASSIGN(const auto store, Store::open(fs(node), path()));
    VARVE_TRY(check_numbers(*store, set, numbers(saved_by, set.step)));
    VARVE_ASSIGN(const VerifyReport report, verify_store(*store, true));
    return report.whole() ? Status() : report.damages.front().what;
  }

  /// A new disk takes the place of the old one; perhaps in a node of another name.
  void lose(uint32_t node, const std::string& new_name = {}) {
    disks_[node] = empty_disk();
    if (!new_name.empty()) names_[node] = new_name;
  }
  /// A node that is out of the job, with what it has.
  struct Away {
    std::unique_ptr<MemoryFileSystem> disk;
    std::string name;
  };
  /// As lose(), but the old node may come back.
  Away swap_out(uint32_t node, const std::string& new_name) {
    return {std::exchange(disks_[node], empty_disk()), std::exchange(names_[node], new_name)};
  }
  void swap_in(uint32_t node, Away away) {
    disks_[node] = std::move(away.disk);
    names_[node] = std::move(away.name);
  }
  void crash(uint32_t node, const CrashPolicy& policy) { disks_[node] = disks_[node]->after_crash(policy); }
  void swap(uint32_t a, uint32_t b) {
    std::swap(disks_[a], disks_[b]);
    std::swap(names_[a], names_[b]);
  }
  /// One bit in the middle of a file is wrong.
  void damage(uint32_t node, const std::string& file) {
    ByteVector bytes = read_file(fs(node), file, 1_GiB).value();
    bytes[bytes.size() / 2] ^= std::byte{1};
    if (!fs(node).remove(file).ok() || !write_file_durably(fs(node), file, bytes).ok()) std::abort();
  }
  std::vector<std::string> arenas(uint32_t node) {
    const auto store = Store::open(fs(node), path()).value();
    std::vector<std::string> paths;
    const std::vector<ArenaId> ids = store->list_arenas().value();
    for (const ArenaId& id : ids) paths.push_back(store->arena_path(id));
    return paths;
  }
  std::map<std::string, ByteVector> files(uint32_t node) {
    std::map<std::string, ByteVector> all;
    collect_files(fs(node), "/", all);
    return all;
  }

  /// What each node does, at the same time as the others; returns how it ended for each.
  std::vector<Status> on_all(const std::function<Status(uint32_t node, Communicator& leaders)>& act,
                             bool messages = true) const {
    std::vector<Status> ended(count());
    std::vector<std::thread> threads;
    auto ranks = make_thread_communicators(count());
    for (uint32_t node = 0; node < count(); ++node) {
      threads.emplace_back([&, node] {
        CollectiveOnly collective(*ranks[node]);
        ended[node] = act(node, messages ? *ranks[node] : collective);
        ranks[node].reset();
      });
    }
    for (std::thread& thread : threads) thread.join();
    return ended;
  }
  /// The outcome that all have; internal if they differ.
  static Status same(const std::vector<Status>& ended) {
    for (const Status& each : ended) {
      if (each.to_string() != ended.front().to_string()) {
        return Status::internal("outcomes differ", ended.front().to_string() + " / " + each.to_string());
      }
    }
    return ended.front();
  }
  /// Protects a set; `own` has another view of the disks of some nodes.
  Status protect(const SetName& set, const std::string& scheme, bool messages = true,
                 const std::map<uint32_t, FileSystem*>& own = {}) {
    const Redundancy redundancy = Redundancy::parse(scheme).value();
    return same(on_all(
        [&](uint32_t node, Communicator& leaders) {
          NodePlace mine = place(node);
          if (own.contains(node)) mine.fs = own.at(node);
          return protect_set(leaders, mine, set, redundancy).status();
        },
        messages));
  }
  /// What restore_lost() says on all nodes; internal if that differs.
  Result<std::vector<RestoredSet>> restore(bool messages = true, const std::map<uint32_t, FileSystem*>& own = {},
                                           const RestoreLostOptions& options = {}) {
    std::vector<std::vector<RestoredSet>> restored(count());
    const Status status = same(on_all(
        [&](uint32_t node, Communicator& leaders) -> Status {
          NodePlace mine = place(node);
          if (own.contains(node)) mine.fs = own.at(node);
          VARVE_ASSIGN(restored[node], restore_lost(leaders, mine, options));
          return {};
        },
        messages));
    VARVE_TRY(status);
    for (const auto& each : restored) {
      if (describe(each) != describe(restored.front())) {
        return Status::internal("outcomes differ", describe(restored.front()) + " / " + describe(each));
      }
    }
    return restored.front();
  }
  static std::string describe(const std::vector<RestoredSet>& sets) {
    std::string text;
    for (const RestoredSet& each : sets) {
      text += each.set.to_string() + ": " + each.status.to_string() + "\n";
      for (const std::string& line : each.rebuilt) text += "  " + line + "\n";
    }
    return text;
  }

 private:
  Nodes() = default;
  static std::unique_ptr<MemoryFileSystem> empty_disk() {
    auto disk = std::make_unique<MemoryFileSystem>();
    if (!disk->create_directory("/local").ok() || !disk->sync_directory("/").ok()) std::abort();
    return disk;
  }

  std::vector<std::unique_ptr<MemoryFileSystem>> disks_;
  std::vector<std::string> names_;
};

}  // namespace varve::test
