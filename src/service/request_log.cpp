#include "service/request_log.h"

namespace varve {

namespace {
/// Far more than clients can have sent within the time for which they repeat a request.
constexpr size_t kEntriesMax = 65'536;
}  // namespace

Reply RequestLog::once(const UniqueId& token, const std::function<Reply()>& act) {
  {
    std::unique_lock lock(mutex_);
    const auto [found, added] = entries_.try_emplace(token);
    if (!added) {
      // Waited for by name: the entry may go while others come.
      changed_.wait(lock, [&] {
        const auto entry = entries_.find(token);
        return entry == entries_.end() || entry->second.done;
      });
      const auto entry = entries_.find(token);
      if (entry != entries_.end()) return entry->second.reply;
      Reply forgotten;
      forgotten.outcome = Outcome::cannot_tell;
      return forgotten;
    }
  }
  try {
    Reply reply = act();
    {
      const std::lock_guard lock(mutex_);
      oldest_.push_back(token);
      entries_[token] = {true, reply};
      while (oldest_.size() > kEntriesMax) {
        entries_.erase(oldest_.front());
        oldest_.pop_front();
      }
    }
    changed_.notify_all();
    return reply;
  } catch (...) {
    forget(token);
    throw;
  }
}

void RequestLog::forget(const UniqueId& token) {
  {
    const std::lock_guard lock(mutex_);
    entries_.erase(token);
  }
  changed_.notify_all();
}

}  // namespace varve
