#include "runtime/restart_candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "core/bytes.h"

namespace varve {

namespace {
constexpr uint64_t kEncodedStepBytes = 16 + 8 + 4;

ByteVector encode_memory(const std::vector<MemoryStep>& memory) {
  ByteVector bytes;
  ByteWriter out(bytes);
  out.varint(memory.size());
  for (const MemoryStep& step : memory) {
    out.bytes(step.run.bytes);
    out.le64(step.step);
    out.le32(step.rank_count);
  }
  return bytes;
}

Result<std::vector<MemoryStep>> decode_memory(ByteSpan bytes) {
  ByteReader in(bytes);
  VARVE_ASSIGN(const uint64_t count, in.count(kEncodedStepBytes));
  std::vector<MemoryStep> memory(count);
  for (MemoryStep& step : memory) {
    VARVE_ASSIGN(const ByteSpan run, in.bytes(step.run.bytes.size()));
    std::copy(run.begin(), run.end(), step.run.bytes.begin());
    VARVE_ASSIGN(step.step, in.le64());
    VARVE_ASSIGN(step.rank_count, in.le32());
  }
  return memory;
}

Result<std::vector<uint64_t>> broadcast_steps(Communicator& ranks, const std::vector<uint64_t>& steps) {
  ByteVector mine;
  ByteWriter out(mine);
  out.varint(steps.size());
  for (uint64_t step : steps) out.le64(step);
  VARVE_ASSIGN(const ByteVector bytes, ranks.broadcast(mine, 0));
  ByteReader in(bytes);
  VARVE_ASSIGN(const uint64_t count, in.count(sizeof(uint64_t)));
  std::vector<uint64_t> all(count);
  for (uint64_t& step : all) {
    VARVE_ASSIGN(step, in.le64());
  }
  return all;
}

bool has(const std::vector<MemoryStep>& memory, const MemoryStep& step) {
  return std::find(memory.begin(), memory.end(), step) != memory.end();
}

/// Of a rank's steps, those that all ranks have.
std::vector<MemoryStep> common_steps(const std::vector<std::vector<MemoryStep>>& memory_by_rank) {
  std::vector<MemoryStep> common;
  for (const MemoryStep& step : memory_by_rank.front()) {
    const bool all = step.rank_count == memory_by_rank.size() &&
                     std::all_of(memory_by_rank.begin(), memory_by_rank.end(),
                                 [&](const std::vector<MemoryStep>& memory) { return has(memory, step); });
    if (all) common.push_back(step);
  }
  return common;
}

/// The newest step that a run of another number of ranks left.
std::optional<MemoryStep> newest_foreign(const std::vector<std::vector<MemoryStep>>& memory_by_rank) {
  std::optional<MemoryStep> newest;
  for (const std::vector<MemoryStep>& memory : memory_by_rank) {
    for (const MemoryStep& step : memory) {
      if (step.rank_count == memory_by_rank.size()) continue;
      if (!newest || step.step > newest->step) newest = step;
    }
  }
  return newest;
}
}  // namespace

std::string RestartCandidate::to_string() const {
  return fmt::format("step {} in {}", step, memory_run ? "memory" : "the store");
}

Result<std::vector<RestartCandidate>> restart_candidates(const std::vector<std::vector<MemoryStep>>& memory_by_rank,
                                                         const std::vector<uint64_t>& store_steps) {
  std::vector<RestartCandidate> candidates;
  for (const MemoryStep& step : common_steps(memory_by_rank)) candidates.push_back({step.step, step.run});
  for (uint64_t step : store_steps) candidates.push_back({step, std::nullopt});
  std::sort(candidates.begin(), candidates.end(), [](const RestartCandidate& a, const RestartCandidate& b) {
    if (a.step != b.step) return a.step > b.step;
    if (a.memory_run.has_value() != b.memory_run.has_value()) return a.memory_run.has_value();
    return a.memory_run < b.memory_run;
  });
  const std::optional<MemoryStep> foreign = newest_foreign(memory_by_rank);
  if (foreign && (candidates.empty() || foreign->step > candidates.front().step)) {
    return Status::invalid_argument(
        fmt::format("the newest checkpoint, step {}, is in memory and was made by {} ranks; this run has {}",
                    foreign->step, foreign->rank_count, memory_by_rank.size()),
        {}, "start as many ranks as before");
  }
  return candidates;
}

Result<std::vector<RestartCandidate>> agree_on_candidates(Communicator& ranks, const std::vector<MemoryStep>& memory,
                                                          const std::vector<uint64_t>& store_steps) {
  VARVE_ASSIGN(const auto gathered, ranks.all_gather(encode_memory(memory)));
  std::vector<std::vector<MemoryStep>> memory_by_rank;
  for (const ByteVector& encoded : gathered) {
    VARVE_ASSIGN(std::vector<MemoryStep> steps, decode_memory(encoded));
    memory_by_rank.push_back(std::move(steps));
  }
  VARVE_ASSIGN(const std::vector<uint64_t> steps, broadcast_steps(ranks, store_steps));
  return restart_candidates(memory_by_rank, steps);
}

}  // namespace varve
