// Stage 1 of a checkpoint beside its limit: a plain copy of the same bytes by as many threads, into memory that was
// touched before. Arguments: MiB, threads.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "snapshot/image_copy.h"
#include "snapshot/snapshot.h"
#include "snapshot/snapshot_view.h"

namespace varve {
namespace {

constexpr uint64_t kPieceBytes = 4_MiB;

SegmentOwner bench_owner() {
  return {.family = {.folder = "/dev/shm", .user = ::getuid(), .job_key = make_job_key("snapshot_bench", "bench")},
          .run = *UniqueId::random(),
          .rank = 0};
}

std::vector<double> field(uint64_t bytes) {
  std::vector<double> values(bytes / sizeof(double));
  std::iota(values.begin(), values.end(), 0.25);
  return values;
}

void copy_by_threads(CopyTeam& team, std::byte* to, const std::byte* from, uint64_t bytes) {
  team.run((bytes + kPieceBytes - 1) / kPieceBytes, [&](uint64_t piece) {
    const uint64_t begin = piece * kPieceBytes;
    std::memcpy(to + begin, from + begin, std::min(kPieceBytes, bytes - begin));
  });
}

void set_bytes(benchmark::State& state, uint64_t bytes) {
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * bytes));
}

/// The limit: memcpy by threads, from private memory to private memory.
void plain_copy(benchmark::State& state) {
  const uint64_t bytes = static_cast<uint64_t>(state.range(0)) << 20;
  CopyTeam team(static_cast<uint32_t>(state.range(1)));
  const std::vector<double> from = field(bytes);
  std::vector<double> to = field(bytes);
  for (auto _ : state) {
    copy_by_threads(team, reinterpret_cast<std::byte*>(to.data()), reinterpret_cast<const std::byte*>(from.data()),
                    bytes);
    benchmark::ClobberMemory();
  }
  set_bytes(state, bytes);
}

/// The same into shared memory, where a snapshot has to be.
void plain_copy_to_shared_memory(benchmark::State& state) {
  const uint64_t bytes = static_cast<uint64_t>(state.range(0)) << 20;
  CopyTeam team(static_cast<uint32_t>(state.range(1)));
  const std::vector<double> from = field(bytes);
  const Result<SharedSegment> to = SharedSegment::create(bench_owner().slot_path(0), bytes);
  if (!to.ok()) return state.SkipWithError(to.status().to_string().c_str());
  (void)to->unlink();
  for (auto _ : state) {
    copy_by_threads(team, to->data(), reinterpret_cast<const std::byte*>(from.data()), bytes);
    benchmark::ClobberMemory();
  }
  set_bytes(state, bytes);
}

/// One kernel alone, by one thread, into shared memory.
void kernel(benchmark::State& state, const CopyKernel& copy) {
  const uint64_t bytes = static_cast<uint64_t>(state.range(0)) << 20;
  const std::vector<double> from = field(bytes);
  const Result<SharedSegment> to = SharedSegment::create(bench_owner().slot_path(0), bytes);
  if (!to.ok()) return state.SkipWithError(to.status().to_string().c_str());
  (void)to->unlink();
  for (auto _ : state) {
    uint32_t sum = copy.copy_with_crc(to->data(), reinterpret_cast<const std::byte*>(from.data()), bytes, 0);
    store_fence();
    benchmark::DoNotOptimize(sum);
  }
  set_bytes(state, bytes);
}

/// Stage 1 of what the table protects, with the slot given back at once outside of the measured time.
void fill_again_and_again(benchmark::State& state, VariableTable& table, uint64_t bytes) {
  SnapshotOptions options;
  options.copy_threads = static_cast<uint32_t>(state.range(1));
  const SegmentOwner owner = bench_owner();
  const Result<std::unique_ptr<SnapshotMemory>> memory = SnapshotMemory::create(owner, options);
  if (!memory.ok()) return state.SkipWithError(memory.status().to_string().c_str());
  const Result<std::unique_ptr<SnapshotView>> view = SnapshotView::open(owner);
  if (!view.ok()) return state.SkipWithError(view.status().to_string().c_str());
  if (const Status status = (*memory)->reserve(table); !status.ok()) {
    return state.SkipWithError(status.to_string().c_str());
  }
  uint64_t step = 0;
  for (auto _ : state) {
    if (const Status status = (*memory)->fill({++step}, table); !status.ok()) {
      return state.SkipWithError(status.to_string().c_str());
    }
    state.PauseTiming();
    (void)(*view)->begin_drain(step);
    (*view)->end_drain({});
    state.ResumeTiming();
  }
  set_bytes(state, bytes);
}

void snapshot_of_arrays(benchmark::State& state) {
  const uint64_t bytes = static_cast<uint64_t>(state.range(0)) << 20;
  std::vector<double> values = field(bytes);
  VariableTable table;
  constexpr size_t kArrays = 8;
  const size_t each = values.size() / kArrays;
  for (size_t i = 0; i < kArrays; ++i) {
    (void)table.protect_array(std::string(1, static_cast<char>('a' + i)), element_type_of<double>(),
                              values.data() + i * each, each, {});
  }
  fill_again_and_again(state, table, bytes);
}

/// Cubes of doubles with a layer of ghost cells: rows of some hundred bytes.
void snapshot_with_ghost_cells(benchmark::State& state) {
  const uint64_t bytes = static_cast<uint64_t>(state.range(0)) << 20;
  constexpr uint64_t kEdge = 130;
  const uint64_t planes = bytes / (kEdge * kEdge * sizeof(double));
  std::vector<double> values = field(planes * kEdge * kEdge * sizeof(double));
  VariableTable table;
  (void)table.protect_array("f", element_type_of<double>(), values.data(), values.size(),
                            ArrayShape::with_ghosts({planes, kEdge, kEdge}, 1));
  fill_again_and_again(state, table, (planes - 2) * (kEdge - 2) * (kEdge - 2) * sizeof(double));
}

/// With repetitions: what the machine can do when nothing disturbs it.
double smallest(const std::vector<double>& times) { return *std::min_element(times.begin(), times.end()); }

void sizes_and_threads(benchmark::internal::Benchmark* bench) {
  for (const int64_t mebibytes : {64, 512}) {
    for (const int64_t threads : {1, 2}) bench->Args({mebibytes, threads});
  }
  bench->UseRealTime()->Unit(benchmark::kMillisecond)->ComputeStatistics("min", smallest);
}

const bool kRegistered = [] {
  benchmark::RegisterBenchmark("plain_copy", plain_copy)->Apply(sizes_and_threads);
  benchmark::RegisterBenchmark("plain_copy_to_shared_memory", plain_copy_to_shared_memory)->Apply(sizes_and_threads);
  benchmark::RegisterBenchmark("snapshot_of_arrays", snapshot_of_arrays)->Apply(sizes_and_threads);
  benchmark::RegisterBenchmark("snapshot_with_ghost_cells", snapshot_with_ghost_cells)->Apply(sizes_and_threads);
  for (const CopyKernel& each : copy_kernels()) {
    benchmark::RegisterBenchmark(("kernel/" + std::string(each.name)).c_str(),
                                 [each](benchmark::State& state) { kernel(state, each); })
        ->Args({512, 1})
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond)
        ->ComputeStatistics("min", smallest);
  }
  return true;
}();

}  // namespace
}  // namespace varve

BENCHMARK_MAIN();
