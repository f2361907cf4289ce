#pragma once

#include "engine/group_streams.h"

namespace varve {

/// The largest packs that are made for what repeats from far away.
inline constexpr uint64_t kWidePackBytesMax = 32_MiB;

/// Finds the classes whose bytes come again so far away that no usual pack holds both, and not where chunks would be
/// found again: their packs are larger (Stream::pack_bytes), so that a coder sees them. Classes of bytes without a type
/// that have much in common are laid together (Stream::laid_with). Looks at the first 32 MiB of a class, and of all
/// that is laid together. `pack_bytes_max`: no pack is made larger. Nothing is found where options rule it out: while a
/// program waits for its checkpoint, and where codecs are to be fast.
Status find_wide_packs(Source& source, const SaveOptions& options, uint64_t pack_bytes_max, GroupStreams& group);

}  // namespace varve
