#pragma once

#include <algorithm>

#include "aggregate/work_order.h"
#include "arena/pack.h"
#include "codec/codec.h"

namespace varve {

/// New chunks on their way into one pack, as they are handed to a codec chain.
struct PendingPack {
  ByteVector raw;
  PackShape shape;
  PackMeta meta;  ///< without the recipe
};

/// Gathers the new chunks of one similarity class into packs.
class PackBuilder {
 public:
  explicit PackBuilder(uint64_t pack_bytes) : pack_bytes_(pack_bytes) {}

  bool empty() const { return pending_.meta.chunks.empty(); }
  /// Has room ready for a pack of which no more than so many bytes will come.
  void expect(uint64_t bytes) { pending_.raw.reserve(std::min(pack_bytes_, bytes)); }
  /// Whether a chunk of this stream may join what is there.
  bool accepts(const Stream& stream, uint64_t bytes) const;
  /// Adds a chunk; returns its offset in the pack.
  uint64_t add(const Stream& stream, uint64_t stream_offset, ByteSpan bytes, const Score& score);
  /// The pack, with its score; the builder is then empty.
  PendingPack take(const std::string& class_key, const ScoreFunction& score);

 private:
  const uint64_t pack_bytes_;
  PendingPack pending_;
  uint32_t class_id_ = 0;
  const Stream* last_stream_ = nullptr;
  uint64_t run_begin_ = 0, run_end_ = 0;  ///< of the last run, in its stream
};

}  // namespace varve
