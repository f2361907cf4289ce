#pragma once

#include <cstdint>

#include "core/bytes.h"
#include "varve/status.h"

// What other programs compress arrays to, a chunk at a time, as they wrote it. Each fills `out`, whose size is that of
// the content, from bytes that are not trusted: corrupt if they do not give exactly that.

namespace varve {

/// A stream of zlib (RFC 1950).
Status decode_zlib(ByteSpan in, MutableByteSpan out);

/// The CRC-32 of gzip and zip archives (RFC 1952, 8), of what follows bytes whose sum is `before`.
uint32_t gzip_crc32(ByteSpan bytes, uint32_t before = 0);

/// A frame of c-blosc 1 (README_CHUNK_FORMAT.rst), shuffled or not. unsupported: compressed by blosclz or snappy, or by
/// a codec that this build lacks.
Status decode_blosc(ByteSpan in, MutableByteSpan out);

}  // namespace varve
