#include "store/spread_chunk_lookup.h"

#include "core/thread_pool.h"

namespace varve {

namespace {
struct Answer {
  std::vector<uint32_t> counts;
  std::vector<ChunkCandidate> candidates;
};
}  // namespace

SpreadChunkLookup::SpreadChunkLookup(std::vector<ChunkLookup*> places)
    : places_(std::move(places)), pool_(std::make_unique<ThreadPool>(places_.size())) {}

SpreadChunkLookup::~SpreadChunkLookup() = default;

Status SpreadChunkLookup::find(std::span<const uint64_t> prefixes, std::span<uint32_t> counts,
                               std::vector<ChunkCandidate>& candidates) {
  std::vector<Answer> answers(places_.size());
  std::vector<Task<Status>> tasks;
  for (size_t place = 0; place < places_.size(); ++place) {
    Answer& answer = answers[place];
    answer.counts.resize(prefixes.size());
    tasks.push_back(pool_->submit([lookup = places_[place], prefixes, &answer] {
      return lookup->find(prefixes, answer.counts, answer.candidates);
    }));
  }
  Status failure;
  for (Task<Status>& task : tasks) {
    const Status status = task.wait();
    if (failure.ok()) failure = status;
  }
  VARVE_TRY(failure);
  std::vector<size_t> next(places_.size(), 0);
  for (size_t i = 0; i < prefixes.size(); ++i) {
    counts[i] = 0;
    for (size_t place = 0; place < places_.size(); ++place) {
      Answer& answer = answers[place];
      for (uint32_t k = 0; k < answer.counts[i] && next[place] < answer.candidates.size(); ++k) {
        candidates.push_back(answer.candidates[next[place]++]);
        ++counts[i];
      }
    }
  }
  return {};
}

}  // namespace varve
