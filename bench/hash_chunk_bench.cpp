// How fast scores, checksums and chunkers are: bytes per second of one thread, over data that is not in the cache.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <random>

#include "chunk/chunker.h"
#include "hash/score.h"

namespace varve {
namespace {

const ByteVector& random_data() {
  static const ByteVector data = [] {
    ByteVector bytes(64_MiB);
    std::mt19937_64 random(1);
    for (size_t at = 0; at < bytes.size(); at += 8) store_le<uint64_t>(bytes.data() + at, random());
    return bytes;
  }();
  return data;
}

template <class Hash>
void hash_blocks(benchmark::State& state, Hash hash) {
  const ByteSpan data = random_data();
  const auto block_bytes = static_cast<size_t>(state.range(0));
  for (auto _ : state) {
    for (size_t at = 0; at < data.size(); at += block_bytes) {
      auto value = hash(data.subspan(at, std::min(block_bytes, data.size() - at)));
      benchmark::DoNotOptimize(value);
    }
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(data.size()));
}

void score_blocks(benchmark::State& state, ScoreAlgorithm algorithm) {
  auto score = ScoreFunction::create(algorithm, 32);
  if (!score.ok()) {
    state.SkipWithError(score.status().to_string().c_str());
    return;
  }
  hash_blocks(state, *score);
}

void checksum_blocks(benchmark::State& state) {
  hash_blocks(state, [](ByteSpan block) { return crc32c(block); });
}

void cut_chunks(benchmark::State& state, const char* name) {
  const auto chunker = make_chunker(*parse_chunker(name)).value();
  const ByteSpan data = random_data();
  size_t chunks = 0;
  for (auto _ : state) {
    ByteSpan left = data;
    for (chunks = 0; !left.empty(); ++chunks) left = left.subspan(chunker->next(left, left.size()));
    benchmark::DoNotOptimize(chunks);
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(data.size()));
  state.counters["mean_chunk_bytes"] = static_cast<double>(data.size()) / static_cast<double>(chunks);
}

BENCHMARK_CAPTURE(score_blocks, blake3, ScoreAlgorithm::blake3)->Arg(8192)->Arg(65536);
BENCHMARK_CAPTURE(score_blocks, sha256, ScoreAlgorithm::sha256)->Arg(8192)->Arg(65536);
BENCHMARK(checksum_blocks)->Arg(8192)->Arg(65536);
BENCHMARK_CAPTURE(cut_chunks, gear, "gear:8192");
BENCHMARK_CAPTURE(cut_chunks, gear_64k, "gear:65536");
BENCHMARK_CAPTURE(cut_chunks, rabin, "rabin:8192");

}  // namespace
}  // namespace varve

BENCHMARK_MAIN();
