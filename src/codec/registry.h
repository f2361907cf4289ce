#pragma once

#include "codec/codec.h"

namespace varve {

// The codecs, for the registry. Each is defined in the file of its name.
const Codec& zstd_codec();
const Codec& lz4_codec();  ///< if built with it
const Codec& gzip_codec();
const Codec& lzma_codec();
const Codec& constant_codec();
const Codec& shuffle_codec();
const Codec& bitshuffle_codec();
const Codec& delta_codec();
const Codec& lorenzo_codec();
const Codec& signlast_codec();  ///< in lorenzo_codec.cpp
const Codec& columns_codec();
const Codec& across_codec();
const Codec& rotate_codec();
const Codec& inflate_codec();
const Codec& blosc_codec();
const Codec& fpc_codec();
const Codec& fpzip_codec();
const Codec& planes_codec();
const Codec& magnitudes_codec();
const Codec& sections_codec();

}  // namespace varve
