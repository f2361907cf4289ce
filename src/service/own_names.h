#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <string>

#include "core/sync.h"
#include "core/unique_id.h"

namespace varve {

/// Which client has made a file that is not complete yet, so that nobody else takes it away. Knows the newest names
/// only, and those that were made since the server was started. Thread-safe.
class OwnNames {
 public:
  void note(const std::string& path, const UniqueId& client);
  bool is_of(const std::string& path, const UniqueId& client) const;
  void forget(const std::string& path);

  /// Held by who decides by a name's owner, and until what is done then is done.
  Mutex& changing() { return changing_; }

 private:
  static constexpr size_t kNamesMax = 65'536;

  Mutex changing_;
  mutable Mutex mutex_;  ///< guards what follows
  std::map<std::string, UniqueId> owners_;
  std::deque<std::string> oldest_;  ///< some may have been forgotten
};

}  // namespace varve
