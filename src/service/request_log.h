#pragma once

#include <deque>
#include <functional>
#include <unordered_map>

#include "core/sync.h"
#include "service/protocol.h"

namespace varve {

/// The outcomes of requests that must not be carried out twice, for clients that lost the connection before the answer
/// (PROTOCOL.md, "What is repeated"). Lives as long as the server's process. Thread-safe.
class RequestLog {
 public:
  /// Gives the outcome of the request with this token: waits for it if it is being carried out, remembers it if it was,
  /// and otherwise carries it out with `act`. If that throws, nothing is remembered, as after a restart.
  Reply once(const UniqueId& token, const std::function<Reply()>& act);

 private:
  struct Entry {
    bool done = false;
    Reply reply;
  };
  void forget(const UniqueId& token);

  Mutex mutex_;  // guards what follows; not held while a request is carried out
  ConditionVariable changed_;
  std::unordered_map<UniqueId, Entry, UniqueIdHash> entries_;
  std::deque<UniqueId> oldest_;  ///< first
};

}  // namespace varve
