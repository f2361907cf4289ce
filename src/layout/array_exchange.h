#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "layout/layout_reader.h"

// What a process that decodes arrays and the one that asks it say to each other, over a socket for each file. Both are
// the same program; but what the decoding one says is not believed.

namespace varve {

/// A wish: its length (u64), then what encode_wish() made. `check`: whether cells of the array could be read.
enum class ArrayWish : uint8_t { check, read };

/// What the decoding process says. Of `bytes` of the file from `offset` on, the other one then sends how many it has
/// (u64; kFileUnreadable: it cannot read them), and these. `cells`: those that were wished for, `bytes` in all, follow;
/// of a check none. `failure`: a Status, `bytes` long, follows.
struct ArrayAnswer {
  enum class Kind : uint32_t { want_file, cells, failure };
  Kind kind = Kind::failure;
  uint32_t unused = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};
inline constexpr uint64_t kFileUnreadable = UINT64_MAX;
/// Of the file, at a time.
inline constexpr uint64_t kFilePieceBytesMax = 1_MiB;
inline constexpr uint64_t kFailureBytesMax = 64_KiB;
/// Of cells, at a time.
inline constexpr uint64_t kCellBytesMax = 32_MiB;

/// Fulfils wishes over `socket` until it is closed, or something else than a wish comes. `before_each` is called when
/// one has come.
void decode_for(int socket, const LayoutReader& reader, uint64_t file_bytes, const std::function<void()>& before_each);

void encode_wish(ArrayWish kind, const WantedBox& wanted, ByteVector& out);
void encode_failure(const Status& status, ByteVector& out);
/// Of bytes that are not trusted; nothing: they make no sense.
std::optional<Status> decode_failure(ByteSpan bytes);

}  // namespace varve
