#include "service/own_names.h"

namespace varve {

void OwnNames::note(const std::string& path, const UniqueId& client) {
  const std::lock_guard lock(mutex_);
  owners_[path] = client;
  oldest_.push_back(path);
  while (oldest_.size() > kNamesMax) {
    owners_.erase(oldest_.front());
    oldest_.pop_front();
  }
}

bool OwnNames::is_of(const std::string& path, const UniqueId& client) const {
  const std::lock_guard lock(mutex_);
  const auto owner = owners_.find(path);
  return owner != owners_.end() && owner->second == client;
}

void OwnNames::forget(const std::string& path) {
  const std::lock_guard lock(mutex_);
  owners_.erase(path);
}

}  // namespace varve
