#include "store/chunk_lookup.h"

#include <algorithm>
#include <optional>

#include "core/thread_pool.h"

namespace varve {

/// What one place is asked, and its answer.
struct SpreadChunkLookup::Question {
  std::vector<uint64_t> prefixes;
  std::vector<uint32_t> counts;
  std::vector<ChunkCandidate> candidates;
  size_t next_prefix = 0, next_candidate = 0;
};

SpreadChunkLookup::SpreadChunkLookup(std::vector<ChunkLookup*> places)
    : places_(std::move(places)),
      spread_(static_cast<uint32_t>(places_.size())),
      is_far_(std::any_of(places_.begin(), places_.end(), [](const ChunkLookup* place) { return place->is_far(); })),
      pool_(is_far_ ? std::make_unique<ThreadPool>(places_.size()) : nullptr) {}

SpreadChunkLookup::~SpreadChunkLookup() = default;

Status SpreadChunkLookup::find(std::span<const uint64_t> prefixes, std::span<uint32_t> counts,
                               std::vector<ChunkCandidate>& candidates) {
  if (prefixes.size() == 1) return at(prefixes.front()).find(prefixes, counts, candidates);
  std::vector<Question> questions(places_.size());
  for (const uint64_t prefix : prefixes) questions[spread_.place_of_prefix(prefix)].prefixes.push_back(prefix);
  VARVE_TRY(ask(questions));
  for (size_t i = 0; i < prefixes.size(); ++i) {
    Question& question = questions[spread_.place_of_prefix(prefixes[i])];
    const size_t left = question.candidates.size() - question.next_candidate;
    counts[i] = static_cast<uint32_t>(std::min<size_t>(question.counts[question.next_prefix++], left));
    for (uint32_t k = 0; k < counts[i]; ++k) candidates.push_back(question.candidates[question.next_candidate++]);
  }
  return {};
}

Status SpreadChunkLookup::ask(std::vector<Question>& questions) const {
  std::vector<Task<Status>> tasks;
  std::optional<size_t> own;  // one place is asked by this thread: to wake another one takes time
  auto ask_place = [this, &questions](size_t place) {
    Question& question = questions[place];
    question.counts.resize(question.prefixes.size());
    return places_[place]->find(question.prefixes, question.counts, question.candidates);
  };
  for (size_t place = 0; place < places_.size(); ++place) {
    if (questions[place].prefixes.empty()) continue;
    if (own && pool_) {
      tasks.push_back(pool_->submit([ask_place, asked = *own] { return ask_place(asked); }));
    } else if (own) {
      VARVE_TRY(ask_place(*own));
    }
    own = place;
  }
  Status failure = own ? ask_place(*own) : Status();
  for (Task<Status>& task : tasks) {
    const Status status = task.wait();
    if (failure.ok()) failure = status;
  }
  return failure;
}

}  // namespace varve
