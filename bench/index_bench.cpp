// Look-ups in an index of known chunks: a run as a store has it, on disk, of made-up scores. As many chunks
// as VARVE_BENCH_CHUNKS says (10 million); the file has 22 bytes for each. Found and not found, one by one, and many at
// once with what is looked at first prefetched. "filter" is what look-ups that find nothing touch, and so what should
// stay in memory; "resident" is what the process has of it all at the end.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>

#include "backend/folder_backend.h"
#include "core/file_system.h"
#include "store/index_run.h"

namespace varve {
namespace {

uint64_t chunk_count() {
  const char* text = std::getenv("VARVE_BENCH_CHUNKS");
  const uint64_t count = text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
  return count > 0 ? count : 10'000'000;
}

/// The score prefixes of the index: evenly spread but for a disturbance, as hashes are, and ascending without a sort.
uint64_t prefix_of(uint64_t i, uint64_t count) {
  const auto step = static_cast<uint64_t>((static_cast<unsigned __int128>(1) << 64) / count);
  return i * step + (i * 0x9e3779b97f4a7c15u) % step;
}

double resident_bytes() {
  std::ifstream status("/proc/self/statm");
  uint64_t all = 0, resident = 0;
  status >> all >> resident;
  return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

/// One for the program: it takes long to write.
const ChunkIndexRun& the_run() {
  static const std::unique_ptr<ChunkIndexRun> run = [] {
    const std::string path = std::filesystem::temp_directory_path() / ("varve-index-" + std::to_string(::getpid()));
    const uint64_t count = chunk_count();
    UniqueId store, arena;
    uint64_t i = 0;
    FolderBackend folder(posix_file_system(), std::filesystem::temp_directory_path());
    write_index_run(folder, path, store, {{arena}, RunScope::all(), count}, [&] {
      const uint64_t at = i++;
      return ChunkIndexEntry{prefix_of(at, count), 0, static_cast<uint32_t>(at / 128), static_cast<uint32_t>(at % 128)};
    }).ignore("opening it fails then");
    auto opened = ChunkIndexRun::open(folder, path, store).value();
    std::filesystem::remove(path);  // it stays open
    return opened;
  }();
  return *run;
}

enum class Wanted { known, unknown };

void look_up(benchmark::State& state, Wanted wanted, bool many) {
  const ChunkIndexRun& run = the_run();
  const uint64_t count = chunk_count();
  std::mt19937_64 random(1);
  std::vector<uint64_t> prefixes(1 << 20);
  for (uint64_t& prefix : prefixes) prefix = wanted == Wanted::known ? prefix_of(random() % count, count) : random();
  constexpr size_t kAhead = 16;
  std::vector<ChunkCandidate> found;
  uint64_t looked = 0, hits = 0;
  for (auto _ : state) {
    for (size_t i = 0; i < prefixes.size(); ++i) {
      if (many && i + kAhead < prefixes.size()) run.prefetch(prefixes[i + kAhead]);
      found.clear();
      run.find(prefixes[i], found);
      hits += found.size();
    }
    looked += prefixes.size();
  }
  state.SetItemsProcessed(static_cast<int64_t>(looked));
  state.counters["chunks"] = static_cast<double>(count);
  state.counters["hits"] = static_cast<double>(hits) / static_cast<double>(looked);
  state.counters["filter_MB"] = static_cast<double>(run.filter_bytes()) / 1e6;
  state.counters["file_MB"] = static_cast<double>(run.file_bytes()) / 1e6;
  state.counters["resident_MB"] = resident_bytes() / 1e6;
}

BENCHMARK_CAPTURE(look_up, unknown_one_by_one, Wanted::unknown, false)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(look_up, unknown_many_at_once, Wanted::unknown, true)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(look_up, known_one_by_one, Wanted::known, false)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(look_up, known_many_at_once, Wanted::known, true)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace varve

BENCHMARK_MAIN();
