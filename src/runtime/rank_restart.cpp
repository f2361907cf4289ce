#include "runtime/rank_restart.h"

namespace varve {

Status RankRestart::look(const RestartCandidate& candidate) {
  image_.reset();
  VARVE_ASSIGN(image_, levels_.at(candidate.level).image(candidate));
  return variables_.check_loadable(image_->table());
}

Status RankRestart::check() {
  return image_ ? image_->check() : Status::internal("nothing was looked at before it was checked");
}

Status RankRestart::load() {
  if (!image_) return Status::internal("nothing was checked before it was loaded");
  return variables_.load(image_->table(),
                         [this](uint64_t offset, MutableByteSpan into) { return image_->read(offset, into); });
}

Status RankRestart::mend(const RestartCandidate& candidate) {
  StoreLevel* const store = levels_.at(candidate.level).as_store();
  if (store == nullptr) return {};
  image_.reset();  // it has readers of what is going to be replaced
  return store->mend(candidate.step, levels_.stores());
}

}  // namespace varve
