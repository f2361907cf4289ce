#include "codec/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace varve {

namespace {

/// A codec of the format, whether this build has it or not.
struct Entry {
  CodecNumber number;
  std::string_view name;
  const Codec* codec;            ///< null: left out of this build
  std::string_view how_to_have;  ///< for those left out
};

const auto& entries() {
#if VARVE_WITH_LZ4
  const Codec* lz4 = &lz4_codec();
#else
  const Codec* lz4 = nullptr;
#endif
  static const std::array table{
      Entry{CodecNumber::zstd, "zstd", &zstd_codec(), {}},
      Entry{CodecNumber::lz4, "lz4", lz4, "build with -DVARVE_WITH_LZ4=ON and liblz4 (Debian: liblz4-dev)"},
      Entry{CodecNumber::gzip, "gzip", &gzip_codec(), {}},
      Entry{CodecNumber::lzma, "lzma", &lzma_codec(), {}},
      Entry{CodecNumber::constant, "constant", &constant_codec(), {}},
      Entry{CodecNumber::shuffle, "shuffle", &shuffle_codec(), {}},
      Entry{CodecNumber::bitshuffle, "bitshuffle", &bitshuffle_codec(), {}},
      Entry{CodecNumber::delta, "delta", &delta_codec(), {}},
      Entry{CodecNumber::lorenzo, "lorenzo", &lorenzo_codec(), {}},
      Entry{CodecNumber::signlast, "signlast", &signlast_codec(), {}},
      Entry{CodecNumber::columns, "columns", &columns_codec(), {}},
      Entry{CodecNumber::across, "across", &across_codec(), {}},
      Entry{CodecNumber::rotate, "rotate", &rotate_codec(), {}},
      Entry{CodecNumber::inflate, "inflate", &inflate_codec(), {}},
      Entry{CodecNumber::blosc, "blosc", &blosc_codec(), {}},
      Entry{CodecNumber::fpc, "fpc", &fpc_codec(), {}},
      Entry{CodecNumber::fpzip, "fpzip", &fpzip_codec(), {}},
      Entry{CodecNumber::planes, "planes", &planes_codec(), {}},
      Entry{CodecNumber::sections, "sections", &sections_codec(), {}},
      Entry{CodecNumber::magnitudes, "magnitudes", &magnitudes_codec(), {}},
  };
  return table;
}

Result<const Codec*> codec_of(const Entry& entry) {
  if (entry.codec != nullptr) return entry.codec;
  return Status::unsupported("this build of Varve has no such codec", std::string(entry.name),
                             std::string(entry.how_to_have));
}

}  // namespace

Result<const Codec*> find_codec(CodecNumber number) {
  for (const Entry& entry : entries()) {
    if (entry.number == number) return codec_of(entry);
  }
  return Status::unsupported("unknown codec number", fmt::format("{}", static_cast<uint32_t>(number)),
                             "it was written by a newer Varve");
}

Result<const Codec*> find_codec(std::string_view name) {
  for (const Entry& entry : entries()) {
    if (entry.name == name) return codec_of(entry);
  }
  std::string known;
  for (const Entry& entry : entries()) {
    // What repeats is found and written so by itself.
    if (entry.codec == nullptr || entry.number == CodecNumber::constant) continue;
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  return Status::unsupported("unknown codec", std::string(name),
                             "write store, paper, or one or several of these, joined by +: " + known);
}

std::vector<const Codec*> all_codecs() {
  std::vector<const Codec*> codecs;
  for (const Entry& entry : entries()) {
    if (entry.codec != nullptr) codecs.push_back(entry.codec);
  }
  return codecs;
}

}  // namespace varve
