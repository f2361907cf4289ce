#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "backend/backend.h"
#include "sim/random.h"
#include "store/store.h"

namespace varve::sim {

enum class SiteFault : uint8_t { errors, lost_replies, full, cut, power };

/// Where the store of a story lies: who opens it there, and what can go wrong.
class StoreSite {
 public:
  virtual ~StoreSite() = default;
  /// A process's view of the store.
  struct View {
    std::unique_ptr<Backend> backend{};  ///< null: somebody else's
    std::unique_ptr<Store> store{};
  };
  virtual Status create() = 0;
  virtual Result<View> open() = 0;
  /// Evens out its places, if it has several.
  virtual Status rebalance() { return {}; }
  /// Some of it fails from now on, or goes through this once. What cannot happen here does not.
  virtual void strike(SiteFault fault, Random& random) = 0;
  virtual void end_faults() {}
  /// As long after their last sign of life dead writers are known.
  virtual std::chrono::seconds silence() const { return std::chrono::minutes(2); }
  /// How long a process may be stopped that is about to change something.
  virtual uint64_t pause_seconds_max() const { return 200; }
  /// After the last prune; fails if anything is left that no store needs.
  virtual void check_nothing_is_left() {}
};

}  // namespace varve::sim
