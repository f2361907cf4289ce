#include "level/level.h"

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

ByteVector encode_steps(const std::vector<StoreSteps>& stores) {
  ByteVector bytes;
  ByteWriter out(bytes);
  for (const StoreSteps& store : stores) {
    out.varint(store.steps.size());
    for (const uint64_t step : store.steps) out.le64(step);
  }
  return bytes;
}

/// Adds what a rank sees to what is known.
Status add_steps(ByteSpan bytes, std::vector<StoreSteps>& stores) {
  ByteReader in(bytes);
  for (StoreSteps& store : stores) {
    VARVE_ASSIGN(const uint64_t count, in.count(sizeof(uint64_t)));
    for (uint64_t i = 0; i < count; ++i) {
      VARVE_ASSIGN(const uint64_t step, in.le64());
      store.steps.push_back(step);
    }
  }
  return {};
}

void sort_steps(std::vector<StoreSteps>& stores) {
  for (StoreSteps& store : stores) {
    std::sort(store.steps.begin(), store.steps.end());
    store.steps.erase(std::unique(store.steps.begin(), store.steps.end()), store.steps.end());
  }
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
  return fmt::format("step {} in {}", step, memory_run ? "memory" : place);
}

Result<std::vector<RestartCandidate>> restart_candidates(const std::vector<std::vector<MemoryStep>>& memory_by_rank,
                                                         const std::vector<StoreSteps>& stores) {
  std::vector<RestartCandidate> candidates;
  for (const MemoryStep& step : common_steps(memory_by_rank)) candidates.push_back({step.step, step.run, 0, "memory"});
  for (const StoreSteps& store : stores) {
    for (const uint64_t step : store.steps) candidates.push_back({step, std::nullopt, store.level, store.place});
  }
  std::sort(candidates.begin(), candidates.end(), [](const RestartCandidate& a, const RestartCandidate& b) {
    if (a.step != b.step) return a.step > b.step;
    if (a.memory_run.has_value() != b.memory_run.has_value()) return a.memory_run.has_value();
    if (a.level != b.level) return a.level < b.level;
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
                                                          std::vector<StoreSteps> stores) {
  VARVE_ASSIGN(const auto gathered, ranks.all_gather(encode_memory(memory)));
  std::vector<std::vector<MemoryStep>> memory_by_rank;
  for (const ByteVector& encoded : gathered) {
    VARVE_ASSIGN(std::vector<MemoryStep> steps, decode_memory(encoded));
    memory_by_rank.push_back(std::move(steps));
  }
  VARVE_ASSIGN(const auto seen, ranks.all_gather(encode_steps(stores)));
  for (StoreSteps& store : stores) store.steps.clear();
  for (const ByteVector& encoded : seen) VARVE_TRY(add_steps(encoded, stores));
  sort_steps(stores);
  return restart_candidates(memory_by_rank, stores);
}

}  // namespace varve
