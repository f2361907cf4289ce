#include "service/node_files.h"

#include <algorithm>
#include <chrono>

#include "service/wire.h"

namespace varve {

namespace {
constexpr std::chrono::seconds kPatience(120);
/// Where the times of files do not tell whether they have changed, all of them are read once more.
constexpr std::chrono::seconds kRereadPatience(3600);
}  // namespace

Status NodeFiles::ask(Exchange& exchange) {
  const MutexLock one_at_a_time(asking_);
  const MutexLock lock(mutex_);
  exchange_ = &exchange;
  passed_on_ = false;
  tell();
  const auto over = [&]() VARVE_REQUIRES(mutex_) { return exchange.answered || left_; };
  const bool in_time = changed_.wait_for(
      mutex_, exchange.question.kind == FileQuestion::Kind::unchanged ? kRereadPatience : kPatience, over);
  exchange_ = nullptr;
  if (exchange.answered) return exchange.failure;
  if (!in_time) left_ = true;  // an answer to this question must not be taken for one to the next
  return Status::busy("the node " + node_ + (in_time ? " has gone away" : " does not answer"));
}

Status NodeFiles::read(uint64_t file, uint64_t offset, MutableByteSpan into) {
  while (!into.empty()) {
    const size_t bytes = std::min<size_t>(into.size(), kWireDataBytesMax);
    Exchange exchange;
    exchange.question = {FileQuestion::Kind::read, file, offset, bytes};
    exchange.into = into.first(bytes);
    VARVE_TRY(ask(exchange));
    into = into.subspan(bytes);
    offset += bytes;
  }
  return {};
}

Result<uint64_t> NodeFiles::hole_bytes(uint64_t file, uint64_t offset, uint64_t bytes_max) {
  Exchange exchange;
  exchange.question = {FileQuestion::Kind::hole, file, offset, bytes_max};
  VARVE_TRY(ask(exchange));
  if (exchange.number > bytes_max) return Status::corrupt("the node " + node_ + " has a hole where none can be");
  return exchange.number;
}

Status NodeFiles::check_unchanged() {
  Exchange exchange;
  exchange.question.kind = FileQuestion::Kind::unchanged;
  return ask(exchange);
}

void NodeFiles::finish(const Status& outcome) {
  const MutexLock lock(mutex_);
  if (!outcome_) outcome_ = outcome;
  tell();
}

void NodeFiles::answer(const Status& failure, ByteSpan data, uint64_t number) {
  const MutexLock lock(mutex_);
  if (exchange_ == nullptr || !passed_on_) return;
  Exchange& exchange = *exchange_;
  exchange.failure = failure;
  exchange.number = number;
  if (failure.ok() && data.size() != exchange.into.size()) {
    exchange.failure = Status::busy("the node " + node_ + " has other bytes than it offered");
  } else if (failure.ok()) {
    std::copy(data.begin(), data.end(), exchange.into.begin());
  }
  exchange.answered = true;
  exchange_ = nullptr;
  changed_.notify_all();
}

std::optional<Result<FileQuestion>> NodeFiles::question() {
  const MutexLock lock(mutex_);
  if (outcome_) return outcome_->ok() ? Result<FileQuestion>(FileQuestion{}) : *outcome_;
  if (left_) return Status::busy("the server has given the node " + node_ + " up");
  if (exchange_ == nullptr || passed_on_) return {};
  passed_on_ = true;
  return exchange_->question;
}

void NodeFiles::watch(std::function<void()> news) {
  const MutexLock lock(mutex_);
  news_ = std::move(news);
}

void NodeFiles::leave() {
  const MutexLock lock(mutex_);
  left_ = true;
  tell();
}

bool NodeFiles::has_left() const {
  const MutexLock lock(mutex_);
  return left_;
}

}  // namespace varve
