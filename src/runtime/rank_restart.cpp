#include "runtime/rank_restart.h"

#include <algorithm>

#include "store/catalog.h"
#include "store/condemn.h"

namespace varve {

std::vector<MemoryStep> RankRestart::memory_steps() const {
  std::vector<MemoryStep> steps;
  for (const LeftSnapshot& left : left_) steps.push_back({left.owner.run, left.step, left.rank_count});
  return steps;
}

Status RankRestart::check(const RestartCandidate& candidate) {
  memory_.reset();
  stored_.reset();
  return candidate.memory_run ? check_memory(candidate) : check_store(candidate);
}

Status RankRestart::check_memory(const RestartCandidate& candidate) {
  const auto left = std::find_if(left_.begin(), left_.end(), [&](const LeftSnapshot& snapshot) {
    return snapshot.owner.run == *candidate.memory_run && snapshot.step == candidate.step;
  });
  if (left == left_.end()) return Status::not_found("this rank has no such snapshot in memory");
  VARVE_ASSIGN(memory_, left->open_verified());
  return variables_.check_loadable(memory_->image());
}

Status RankRestart::check_store(const RestartCandidate& candidate) {
  const Shelf& shelf = shelves_.at(candidate.level);
  stored_ = std::make_unique<StoredImage>(*shelf.store);
  of_node_ = shelf.of_node;
  const Status checked = check_stored(shelf, candidate);
  const Status condemned = condemn_arenas(*shelf.store, stored_->damaged_arenas());
  if (!condemned.ok()) {
    warnings_.add(condemned.with_context("what is damaged could not be marked, so that new sets may rest on it"));
  }
  return checked;
}

Status RankRestart::check_stored(const Shelf& shelf, const RestartCandidate& candidate) {
  VARVE_ASSIGN(const SetRecord record, Catalog(*shelf.store).read({place_.job, candidate.step}));
  VARVE_TRY(shelf.of_node ? stored_->open_of_node(record, place_.rank, place_.rank_count, shelf.group)
                          : stored_->open(record, place_.rank, place_.rank_count, shelf.group));
  VARVE_TRY(variables_.check_loadable(stored_->image()));
  return stored_->verify(place_.thread_count, place_.kept_bytes_max);
}

std::optional<SetOrigin> RankRestart::origin() const {
  return stored_ && of_node_ ? std::optional(stored_->origin()) : std::nullopt;
}

Status RankRestart::load() {
  if (memory_) {
    return variables_.load(memory_->image(),
                           [this](uint64_t offset, MutableByteSpan into) { return memory_->read(offset, into); });
  }
  if (!stored_) return Status::internal("nothing was checked before it was loaded");
  return variables_.load(stored_->image(),
                         [this](uint64_t offset, MutableByteSpan into) { return stored_->read(offset, into); });
}

}  // namespace varve
