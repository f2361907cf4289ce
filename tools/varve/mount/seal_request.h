#pragma once

#include <linux/ioctl.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/bytes.h"
#include "varve/status.h"

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

/// Asks the mount that `folder` is in to seal the open set whose folder it is; returns when it is committed.
/// invalid_argument: it is in no mount of a store.
Status request_seal(const std::string& folder);
/// What the mount knows of the set, in lines for people.
Result<std::string> request_set_state(const std::string& folder);

}  // namespace varve
