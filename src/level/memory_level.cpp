#include "level/memory_level.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>

#include "core/guarded.h"
#include "core/thread_pool.h"
#include "level/levels.h"
#include "level/node_parts.h"
#include "level/reshaped_image.h"
#include "snapshot/snapshot_reader.h"
#include "store/catalog.h"

namespace varve {

SegmentFamily job_memory(const std::string& shared_memory, const std::string& job, const LevelSpec& nearest,
                         const std::string& path, const std::string& node) {
  // A node's own store has the same name on all nodes, and other paths; two in different folders may be named alike.
  const bool by_name = nearest.is_of_node() || nearest.is_on_servers();
  LevelSpec named = nearest;
  std::error_code error;
  if (nearest.is_of_node() && !nearest.place.starts_with('/'))
    named.place = std::filesystem::absolute(nearest.place, error).lexically_normal().string();
  const std::string of_node = node.empty() ? std::string() : "\n" + node;
  return {shared_memory, static_cast<uint32_t>(::getuid()),
          make_job_key((by_name ? named.name() : path) + of_node, job)};
}

// The snapshots in the nodes' shared memory, as a level: those of the run itself are its session's, those that dead
// runs have left can be restarted from.

namespace {
class SnapshotImage final : public RankImage {
 public:
  SnapshotImage(std::unique_ptr<SnapshotReader> reader, size_t threads)
      : reader_(std::move(reader)), threads_(threads) {}
  const ImageTable& table() const override { return reader_->image(); }
  Status load(ImageTarget& target) override { return reader_->load(threads_, target); }

 private:
  const std::unique_ptr<SnapshotReader> reader_;
  const size_t threads_;
};

/// What ranks of a dead run have left on this node. Each snapshot's checksums are looked at when some of it is read
/// first.
class LeftParts final : public HeldParts {
 public:
  LeftParts(uint32_t rank_count, std::map<uint32_t, std::unique_ptr<SnapshotReader>> readers)
      : rank_count_(rank_count) {
    for (auto& [rank, reader] : readers) left_[rank].reader = std::move(reader);
  }
  uint32_t rank_count() const override { return rank_count_; }
  std::vector<uint32_t> ranks() const override {
    std::vector<uint32_t> ranks;
    for (const auto& [rank, left] : left_) ranks.push_back(rank);
    return ranks;
  }
  ImageTable table(uint32_t rank) const override { return left_.at(rank).reader->image(); }
  Status load(std::span<const PartLoad> loads, size_t thread_count) override {
    return parallel_for(loads.size(), thread_count, [&](size_t i) { return load_part(loads[i]); });
  }

 private:
  struct Left {
    std::unique_ptr<SnapshotReader> reader{};
    bool is_verified = false;
  };
  /// Of one rank one thread at a time.
  Result<const SnapshotReader*> verified(uint32_t rank) {
    Left& left = left_.at(rank);
    if (!left.is_verified) VARVE_TRY(left.reader->verify());
    left.is_verified = true;
    return left.reader.get();
  }
  Status read_part(const PartRead& read) override {
    VARVE_ASSIGN(const SnapshotReader* const reader, verified(read.rank));
    return reader->read(read.offset, read.into);
  }
  Status load_part(const PartLoad& load) {
    VARVE_ASSIGN(const SnapshotReader* const reader, verified(load.rank));
    for (const Extent& extent : load.wanted) {
      for (uint64_t done = 0; done < extent.bytes;) {
        const ByteSpan bytes = reader->view(extent.offset + done, extent.bytes - done);
        if (bytes.empty()) return Status::corrupt("bytes past the end of a snapshot's image were asked for");
        load.target->put(extent.offset + done, bytes);
        done += bytes.size();
      }
    }
    return {};
  }

  const uint32_t rank_count_;
  std::map<uint32_t, Left> left_;  ///< by rank
};

class MemoryLevel final : public Level {
 public:
  MemoryLevel(const LevelSpec& spec, LevelWorld& world, const Levels& all) : Level(spec, world), all_(all) {}

  /// Who speaks for the node tells of all that is there.
  std::vector<MemoryStep> snapshots() const override {
    std::vector<MemoryStep> steps;
    if (!world_.speaks_for_node()) return steps;
    for (const LeftSnapshot& left : world_.left_runs.snapshots)
      steps.push_back({left.owner.run, left.checkpoint.step, left.rank_count, left.owner.rank, left.checkpoint.run,
                       left.checkpoint.number});
    return steps;
  }

  Result<std::unique_ptr<RankImage>> image(const RestartCandidate& candidate, const RankWish& wish) override {
    std::map<uint32_t, LeftSnapshot> left;
    const auto find_own = [&]() -> Result<std::unique_ptr<RankImage>> {
      left = left_of(candidate);
      const auto own = left.find(wish.rank);
      if (own == left.end() || own->second.rank_count != wish.rank_count) return std::unique_ptr<RankImage>();
      VARVE_ASSIGN(std::unique_ptr<SnapshotReader> reader, own->second.open());
      if (!is_same_part(wish, wish.rank_count, reader->image())) return std::unique_ptr<RankImage>();
      return std::unique_ptr<RankImage>(std::make_unique<SnapshotImage>(std::move(reader), world_.work.load_threads));
    };
    const auto open_all = [&]() -> Result<std::unique_ptr<HeldParts>> {
      if (left.empty()) return std::unique_ptr<HeldParts>();
      std::map<uint32_t, std::unique_ptr<SnapshotReader>> readers;
      for (const auto& [rank, snapshot] : left) {
        VARVE_ASSIGN(readers[rank], snapshot.open());
      }
      return std::unique_ptr<HeldParts>(
          std::make_unique<LeftParts>(left.begin()->second.rank_count, std::move(readers)));
    };
    return image_over_nodes(world_, wish, run_guarded(find_own), open_all, /*number=*/0, world_.work.load_threads);
  }

  Result<std::map<uint32_t, ImageTable>> tables(const RestartCandidate& candidate) override {
    std::map<uint32_t, ImageTable> tables;
    if (!world_.speaks_for_node()) return tables;
    for (const auto& [rank, left] : left_of(candidate)) {
      VARVE_ASSIGN(const auto reader, SnapshotReader::open(left.owner, left.slot, SharedSegment::Access::read));
      tables.emplace(rank, reader->image());
    }
    return tables;
  }

  LevelProgress progress(const RunNews& run) const override { return {.level = name(), .newest = run.newest_snapshot}; }

  /// Of the jobs that the nearest store has, if it can be reached, and of the one that the options name.
  Result<LevelContents> contents(const Store* nearest) override {
    LevelContents there;
    const Result<uint64_t> free = posix_file_system().free_bytes(world_.shared_memory);
    if (free.ok()) there.free_bytes = *free;
    std::vector<std::string> jobs;
    if (nearest != nullptr) {
      VARVE_ASSIGN(jobs, Catalog(*nearest).jobs());
    }
    if (std::find(jobs.begin(), jobs.end(), world_.job) == jobs.end()) jobs.push_back(world_.job);
    const StoreLevel& store = all_.nearest();
    for (std::string& job : jobs) {
      VARVE_ASSIGN(const MemoryUse use,
                   memory_use(job_memory(world_.shared_memory, job, store.spec(), store.access().path(), world_.node)));
      if (use.bytes == 0) continue;
      there.bytes += use.bytes;
      there.jobs.push_back({.job = std::move(job),
                            .sets = use.newest_step ? 1u : 0u,
                            .newest = use.newest_step,
                            .behind = 0,
                            .is_running = use.running});
    }
    return there;
  }

 private:
  /// What is here of a checkpoint, by rank. The memory of a run that has gone back may have others of that step.
  std::map<uint32_t, LeftSnapshot> left_of(const RestartCandidate& candidate) const {
    std::map<uint32_t, LeftSnapshot> left;
    for (const LeftSnapshot& snapshot : world_.left_runs.snapshots) {
      const CheckpointId& there = snapshot.checkpoint;
      if (snapshot.owner.run == candidate.memory_run && there.step == candidate.step && there.run == candidate.made_by)
        left.emplace(snapshot.owner.rank, snapshot);
    }
    return left;
  }

  const Levels& all_;
};
}  // namespace

constinit const LevelKind kMemoryLevel{
    .form = "memory",
    .words = {"memory"},
    .position = LevelKind::Position::first,
    .position_rule = "memory is the first level",
    .holds_sets = false,
    .takes_options = false,
    .name = [](const LevelSpec&) { return std::string("memory"); },
    .make = [](const LevelSpec& spec, LevelWorld& world, const Levels& all) -> std::unique_ptr<Level> {
      return std::make_unique<MemoryLevel>(spec, world, all);
    },
};

}  // namespace varve
