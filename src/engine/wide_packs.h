#pragma once

#include <algorithm>

#include "engine/group_streams.h"

namespace varve {

/// What a pack takes while it is encoded, in times its size; packs being encoded have a fourth of a group's memory.
inline constexpr uint64_t kEncodingPackFactor = 3;
/// The largest packs that are made for what repeats from far away by a group that has so much memory.
constexpr uint64_t wide_pack_bytes_max(uint64_t group_memory_bytes) {
  return std::min<uint64_t>(group_memory_bytes / 4 / kEncodingPackFactor, 32_MiB);
}

/// Finds the classes whose bytes come again so far away that no usual pack holds both, and not where chunks would be
/// found again: their packs are larger (Stream::pack_bytes), so that a coder sees them. With effort best, a class whose
/// bytes are for the most part in another one of its type is laid together with that (Stream::laid_with). So are packs
/// larger of classes whose bytes programs compressed in pieces that usual packs would cut (codec/opened.h). Looks at
/// the first 32 MiB of a class, and 64 MiB of all that may be laid together. `pack_bytes_max`: no pack is made larger
/// (wide_pack_bytes_max()). Nothing is found where options rule it out: while a program waits for its checkpoint, and
/// where codecs are to be fast.
Status find_wide_packs(Source& source, const SaveOptions& options, uint64_t pack_bytes_max, GroupStreams& group);

}  // namespace varve
