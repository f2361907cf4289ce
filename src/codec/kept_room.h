#pragma once

#include "core/bytes.h"

namespace varve {

/// Room that a codec keeps between calls: first touch of fresh memory costs more than to fill it.
class KeptRoom {
 public:
  /// Uninitialised, until the next take().
  MutableByteSpan take(size_t bytes) {
    if (room_.size() < bytes) room_ = Buffer(bytes);
    return MutableByteSpan(room_).first(bytes);
  }
  /// Lets go of more than is worth keeping.
  void shrink() {
    constexpr size_t kept_bytes_max = 8_MiB;
    if (room_.size() > kept_bytes_max) room_ = Buffer();
  }

 private:
  Buffer room_;
};

}  // namespace varve
