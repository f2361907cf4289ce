#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "core/sync.h"
#include "service/protocol.h"
#include "service/pulse.h"

namespace varve {

class ServerLink;

/// Copies sets between a server's store and that of its next level, for clients who ask for it. One at a time.
class NextLevel {
 public:
  NextLevel(std::string store_path, std::string location, std::string key_file)
      : store_path_(std::move(store_path)), location_(std::move(location)), key_file_(std::move(key_file)) {}

  /// Carries out a push or pull; calls `alive` every few seconds meanwhile, from another thread. busy: another one is
  /// at work.
  Reply transfer(const Request& request, const SignOfLife& alive);
  /// Ends a transfer at the next convenient point, and lets no other begin.
  void stop() { stopping_ = true; }

 private:
  Result<TransferNumbers> copy(const Request& request);

  const std::string store_path_, location_, key_file_;
  Mutex mutex_;  // held by the transfer at work
  std::atomic<bool> stopping_{false};
};

struct ServerTransfer {
  std::string set;              ///< JOB@STEP
  std::string recode;           ///< a codec policy; empty: packs stay as they are
  bool check_held = false;      ///< TransferOptions
  double bytes_per_second = 0;  ///< 0: no limit
};
/// Has a server copy a set to its next level (`push`), or from there (`pull`). Fails as copy_set() does; unsupported:
/// the server has no next level.
Result<TransferNumbers> transfer_on_server(ServerLink& link, Message direction, const ServerTransfer& what);

}  // namespace varve
