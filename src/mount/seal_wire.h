#pragma once

#include <linux/ioctl.h>

#include <cstddef>
#include <cstdint>

#include "core/bytes.h"

namespace varve {

/// What `varve seal` and the mount say to each other, by ioctl() on the folder of a set: extended attributes would cost
/// each write of every program a question for them.
struct SealMessage {
  uint32_t bytes = 0;       ///< of what follows: a Status (status_codec.h), or a text
  uint32_t is_failure = 0;  ///< whether it is a Status
  std::byte content[4088]{};
};
inline constexpr unsigned kSealRequest = _IOR('V', 0x51, SealMessage);
inline constexpr unsigned kStateRequest = _IOR('V', 0x52, SealMessage);

}  // namespace varve
