#pragma once

#include <cstdint>
#include <optional>

#include "core/bytes.h"
#include "varve/status.h"

namespace varve {

/// What a group's checkpoint thread tells a member beside its slots.
struct GroupNews {
  std::optional<uint64_t> newest_persistent;  ///< step whose whole set is complete in the store
  uint64_t bytes_to_write = 0;
  uint64_t bytes_written = 0;
  Status last_error;
  std::optional<uint64_t> failed_step;    ///< of that error
  std::optional<uint64_t> finished_step;  ///< up to this step nothing more will be tried: complete, or failed
};

/// For a control segment or a message; long texts of the error are cut, so that kNewsBytesMax hold it.
ByteVector encode_news(const GroupNews& news);
constexpr size_t kNewsBytesMax = 1024;
/// Ignores what follows. corrupt: it is none.
Result<GroupNews> decode_news(ByteSpan bytes);

}  // namespace varve
