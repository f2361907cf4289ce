#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <variant>

#include "core/metrics.h"
#include "service/messages.h"

namespace varve {

/// How many requests of each kind a server has carried out, how long they took, and what went over the wire with them.
/// Thread-safe.
class RequestCounters {
 public:
  /// `kind`: the request's place in AnyRequest. Bytes are those of data, without headers and fields.
  void note(size_t kind, bool done, double seconds, uint64_t received_bytes, uint64_t sent_bytes);
  void tell(Metrics& metrics) const;

 private:
  static constexpr size_t kKinds = std::variant_size_v<AnyRequest>;
  /// In seconds; requests that took longer come behind.
  static constexpr std::array<double, 9> kBounds = {0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 1, 10};
  struct Kind {
    std::atomic<uint64_t> done{0}, refused{0};
    std::atomic<uint64_t> nanoseconds{0};
    std::array<std::atomic<uint64_t>, kBounds.size() + 1> spread{};
  };

  std::array<Kind, kKinds> kinds_;
  std::atomic<uint64_t> received_bytes_{0}, sent_bytes_{0};
};

}  // namespace varve
