#include "comm/mailbox.h"

#include <fmt/format.h>

#include <cstring>

namespace varve {

Status rank_ended(uint32_t rank) {
  return Status::io_error("a rank has ended, and cannot be reached", fmt::format("rank {}", rank));
}

Status wrong_message_size(uint32_t from, uint64_t bytes, uint64_t expected_bytes) {
  return Status::corrupt(fmt::format("a message has {} bytes, not {}", bytes, expected_bytes),
                         fmt::format("from rank {}", from));
}

Status check_rank(uint32_t rank, uint32_t rank_count) {
  if (rank < rank_count) return {};
  return Status::invalid_argument(fmt::format("there is no rank {} among {}", rank, rank_count));
}

Status Mailbox::put(uint32_t from, uint32_t tag, ByteSpan message) {
  {
    std::lock_guard lock(mutex_);
    if (closed_) return Status::io_error("the receiver of a message has ended");
    waiting_[{from, tag}].emplace_back(message.begin(), message.end());
  }
  changed_.notify_all();
  return {};
}

Status Mailbox::take(uint32_t from, uint32_t tag, MutableByteSpan into) {
  ByteVector message;
  {
    std::unique_lock lock(mutex_);
    std::deque<ByteVector>& queue = waiting_[{from, tag}];  // a map's elements stay where they are
    changed_.wait(lock, [&] { return !queue.empty() || ended_.contains(from); });
    if (queue.empty()) return rank_ended(from);
    message = std::move(queue.front());
    queue.pop_front();
  }
  if (message.size() != into.size()) return wrong_message_size(from, message.size(), into.size());
  if (!message.empty()) std::memcpy(into.data(), message.data(), message.size());
  return {};
}

void Mailbox::sender_ended(uint32_t from) {
  {
    std::lock_guard lock(mutex_);
    ended_.insert(from);
  }
  changed_.notify_all();
}

void Mailbox::close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  waiting_.clear();
}

}  // namespace varve
