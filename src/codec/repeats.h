#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/bytes.h"

namespace varve {

/// Windows that a coder which is fast finds again; that a thorough one does; and the shortest, which tell records of a
/// few numbers that come again in another order.
inline constexpr uint64_t kLongWindowBytes = 64, kShortWindowBytes = 16, kShortestWindowBytes = 8;

namespace kernels {
/// Of so many bytes each, whether the eight bytes from it on begin an anchor, as one of 2^`bits` does: bit i of a mark
/// is for its byte i. Reads eight bytes more than the marks are for.
inline constexpr size_t kMarkedBytes = 32;
void mark_byte_anchors(const std::byte* at, int bits, std::span<uint32_t> marks);
/// The same, as it is defined.
void mark_byte_anchors_plain(const std::byte* at, int bits, std::span<uint32_t> marks);
}  // namespace kernels

/// Tells how much comes again in some bytes, at most 4 GiB, and how far away: of one window in some hundreds, chosen by
/// their content. What repeats itself at once, as constants do, does not count.
class Repeats {
 public:
  /// Numbers of 2, 4 or 8 bytes come again at a multiple of their size; of other elements nothing is known.
  /// `window_bytes`: so many, a multiple of eight, have to be the same. `chunk_bytes`: what comes again at a multiple
  /// of it is a chunk that is known, and does not count; 0: there are none. About `bytes_in_all` will come.
  Repeats(uint64_t element_bytes, uint64_t window_bytes, uint64_t bytes_in_all, uint64_t chunk_bytes = 0);
  /// Bytes that come next.
  void add(ByteSpan bytes);
  /// What comes next is cut into chunks anew.
  void begin_chunks();
  /// The same, and it is another part, whose bytes are looked for in those before it.
  void begin_part();
  /// The share that comes again, at any distance.
  double share() const { return share_within(UINT64_MAX); }
  /// Of the last part, the share that is not in it before, but in an earlier part, counted from 0, as the nearest.
  double share_in_part(size_t earlier) const;
  /// How large packs have to be to hold nearly all that comes again: a power of two times `pack_bytes`, at most
  /// `pack_bytes_max`. 0: packs of `pack_bytes` hold it, or it is too little to care.
  uint64_t pack_bytes_wanted(uint64_t pack_bytes, uint64_t pack_bytes_max) const;

 private:
  struct Anchor {
    uint32_t hash = 0;  ///< the upper half of it, whose lower half is the place
    uint32_t at = 0;
  };
  template <class Word>
  void add_numbers(ByteSpan bytes);
  void add_bytes(ByteSpan bytes);
  /// That an anchor begins at `offset` of what comes next.
  template <class Word>
  void note(ByteSpan bytes, size_t offset);
  /// In packs of so many bytes.
  double share_within(uint64_t pack_bytes) const;

  const uint64_t element_bytes_, window_bytes_, chunk_bytes_;
  const int anchor_bits_;
  uint64_t at_ = 0;
  std::vector<Anchor> anchors_;       ///< by their hash; of two that share a place, the last
  std::array<uint64_t, 65> again_{};  ///< anchors that came again, by the bits of the distance
  uint64_t anchor_count_ = 0;         ///< without those of known chunks
  std::vector<uint64_t> part_begins_ = {0};
  std::vector<uint64_t> part_again_;  ///< anchors of the last part, by the earlier part that had them last
  uint64_t part_anchor_count_ = 0;    ///< of the last part
};

}  // namespace varve
