#include "level/memory_level.h"

#include <unistd.h>

#include <algorithm>
#include <map>

#include "level/levels.h"
#include "level/reshaped_image.h"
#include "snapshot/snapshot_reader.h"
#include "store/catalog.h"

namespace varve {

SegmentFamily job_memory(const std::string& shared_memory, const std::string& job, const LevelSpec& nearest,
                         const std::string& path, const std::string& node) {
  // A node's own store has the same name on all nodes, and other paths.
  const bool by_name = nearest.is_of_node() || nearest.is_on_servers();
  const std::string of_node = node.empty() ? std::string() : "\n" + node;
  return {shared_memory, static_cast<uint32_t>(::getuid()),
          make_job_key((by_name ? nearest.name() : path) + of_node, job)};
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

/// What all ranks of a dead run have left on this node.
class LeftParts final : public CheckpointParts {
 public:
  /// `readers`: one of each rank, in their order.
  explicit LeftParts(std::vector<std::unique_ptr<SnapshotReader>> readers) : readers_(std::move(readers)) {}
  uint32_t rank_count() const override { return static_cast<uint32_t>(readers_.size()); }
  const ImageTable& table(uint32_t rank) const override { return readers_[rank]->image(); }
  Status read(uint32_t rank, uint64_t offset, MutableByteSpan into) override {
    return readers_[rank]->read(offset, into);
  }
  Status load(uint32_t rank, std::span<const Extent> wanted, ImageTarget& target) override {
    for (const Extent& extent : wanted) {
      for (uint64_t done = 0; done < extent.bytes;) {
        const ByteSpan bytes = readers_[rank]->view(extent.offset + done, extent.bytes - done);
        if (bytes.empty()) return Status::corrupt("bytes past the end of a snapshot's image were asked for");
        target.put(extent.offset + done, bytes);
        done += bytes.size();
      }
    }
    return {};
  }

 private:
  const std::vector<std::unique_ptr<SnapshotReader>> readers_;
};

class MemoryLevel final : public Level {
 public:
  MemoryLevel(const LevelSpec& spec, LevelWorld& world, const Levels& all) : Level(spec, world), all_(all) {}

  /// Of runs of other numbers of ranks, with whether all of it is here.
  std::vector<MemoryStep> snapshots() const override {
    std::vector<MemoryStep> steps;
    for (const LeftSnapshot& left : world_.left_runs.snapshots) {
      MemoryStep step{left.owner.run, left.step, left.rank_count};
      if (left.rank_count != world_.ranks.rank_count()) {
        step.all_ranks = left_of(step.run, step.step).size() == step.rank_count;
        // What some ranks lack is no checkpoint, unless these were on other nodes.
        if (!step.all_ranks && left.ranks_here == left.rank_count) continue;
        if (std::find(steps.begin(), steps.end(), step) != steps.end()) continue;
      } else if (left.owner.rank != world_.ranks.rank()) {
        continue;
      }
      steps.push_back(step);
    }
    return steps;
  }

  Result<std::unique_ptr<RankImage>> image(const RestartCandidate& candidate, const RankWish& wish) override {
    const std::map<uint32_t, LeftSnapshot> left = left_of(*candidate.memory_run, candidate.step);
    if (left.empty()) return Status::not_found("this rank has no such snapshot in memory");
    const uint32_t rank_count = left.begin()->second.rank_count;
    if (rank_count == wish.rank_count) {
      const auto own = left.find(wish.rank);
      if (own == left.end()) return Status::not_found("this rank has no such snapshot in memory");
      VARVE_ASSIGN(std::unique_ptr<SnapshotReader> reader, own->second.open());
      if (is_same_part(wish, rank_count, reader->image()))
        return std::unique_ptr<RankImage>(std::make_unique<SnapshotImage>(std::move(reader), world_.work.load_threads));
    }
    if (left.size() != rank_count)
      return Status::not_found("this node's memory has only some of the ranks that made the snapshot");
    std::vector<std::unique_ptr<SnapshotReader>> readers;
    for (const auto& [rank, snapshot] : left) {
      VARVE_ASSIGN(readers.emplace_back(), snapshot.open_verified());
    }
    return ReshapedImage::plan(wish, std::make_unique<LeftParts>(std::move(readers)), world_.work.load_threads);
  }

  Result<std::map<uint32_t, ImageTable>> tables(const RestartCandidate& candidate) override {
    std::map<uint32_t, ImageTable> tables;
    if (!world_.speaks_for_node()) return tables;
    for (const auto& [rank, left] : left_of(*candidate.memory_run, candidate.step)) {
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
  /// What is here of a run's step, by rank.
  std::map<uint32_t, LeftSnapshot> left_of(const UniqueId& run, uint64_t step) const {
    std::map<uint32_t, LeftSnapshot> left;
    for (const LeftSnapshot& snapshot : world_.left_runs.snapshots) {
      if (snapshot.owner.run == run && snapshot.step == step) left.emplace(snapshot.owner.rank, snapshot);
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
