#include "runtime/group_progress.h"

#include <algorithm>

namespace varve {

namespace {
constexpr double kPostSeconds = 0.1;
}

void GroupProgress::begin(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  written_ = 0;
  news_.bytes_to_write = bytes;
  news_.bytes_written = 0;
  posted_ = clock_.seconds();
  post_(news_);
}

void GroupProgress::advance(uint64_t bytes) {
  written_ += bytes;
  // Who comes while another one posts goes on with its work.
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || clock_.seconds() - posted_ < kPostSeconds) return;
  news_.bytes_written = std::min<uint64_t>(written_, news_.bytes_to_write);
  posted_ = clock_.seconds();
  post_(news_);
}

void GroupProgress::wrote() {
  std::lock_guard lock(mutex_);
  news_.bytes_to_write = news_.bytes_written = 0;
  post_(news_);
}

void GroupProgress::end(uint64_t step, const Status& outcome) {
  std::lock_guard lock(mutex_);
  if (outcome.ok()) {
    news_.newest_persistent = std::max(news_.newest_persistent.value_or(0), step);
  } else {
    news_.last_error = outcome;
    news_.failed_step = std::max(news_.failed_step.value_or(0), step);
  }
}

void GroupProgress::finish(uint64_t step) {
  std::lock_guard lock(mutex_);
  news_.finished_step = std::max(news_.finished_step.value_or(0), step);
  post_(news_);
}

}  // namespace varve
