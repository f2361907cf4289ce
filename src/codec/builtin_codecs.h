#pragma once

#include "codec/codec.h"

namespace varve {

// The codecs of this build, for the registry. Each is defined in the file of its name.
const Codec& zstd_codec();
#if VARVE_WITH_LZ4
const Codec& lz4_codec();
#endif
const Codec& gzip_codec();
const Codec& lzma_codec();
const Codec& constant_codec();
const Codec& shuffle_codec();
const Codec& bitshuffle_codec();
const Codec& delta_codec();
const Codec& lorenzo_codec();
const Codec& fpc_codec();
const Codec& fpzip_codec();

}  // namespace varve
