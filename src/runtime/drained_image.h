#pragma once

#include <cstdint>

#include "core/bytes.h"
#include "snapshot/image.h"
#include "varve/status.h"

namespace varve {

/// A member's snapshot while the checkpoint thread writes it: its bytes do not change.
class DrainedImage {
 public:
  virtual ~DrainedImage() = default;
  virtual const ImageTable& image() const = 0;
  virtual Status read(uint64_t offset, MutableByteSpan into) = 0;
  /// Asked after the last read: corrupt if somebody has changed it after all.
  virtual Status check_unchanged() = 0;
};

}  // namespace varve
