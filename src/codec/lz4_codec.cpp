#include <fmt/format.h>
#include <lz4.h>
#include <lz4hc.h>

#include "codec/registry.h"

namespace varve {
namespace {

/// LZ4 blocks; a level above 0 takes the slower encoder (LZ4 HC), whose blocks decode the same.
class Lz4Codec final : public Codec {
 public:
  CodecNumber number() const override { return CodecNumber::lz4; }
  std::string_view name() const override { return "lz4"; }
  bool applies_to(const PackShape&) const override { return true; }

  Status encode(ByteSpan in, const PackShape&, int level, ByteVector&, ByteVector& out) const override {
    if (level < 0 || level > LZ4HC_CLEVEL_MAX)
      return Status::invalid_argument(fmt::format("lz4 has the levels 0 to {}", LZ4HC_CLEVEL_MAX));
    if (in.size() > LZ4_MAX_INPUT_SIZE) return Status::invalid_argument("too many bytes for an lz4 block");
    const int in_bytes = static_cast<int>(in.size());
    const int bound = LZ4_compressBound(in_bytes);
    const size_t before = out.size();
    out.resize(before + static_cast<size_t>(bound));
    const char* from = reinterpret_cast<const char*>(in.data());
    char* to = reinterpret_cast<char*>(out.data() + before);
    // Its slower encoder looks before the beginning of nothing.
    const int bytes = level > 0 && !in.empty() ? LZ4_compress_HC(from, to, in_bytes, bound, level)
                                               : LZ4_compress_default(from, to, in_bytes, bound);
    if (bytes <= 0) return Status::internal("lz4 could not encode");
    out.resize(before + static_cast<size_t>(bytes));
    return {};
  }

  Status decode(ByteSpan in, ByteSpan params, MutableByteSpan out) const override {
    if (!params.empty() || in.size() > INT32_MAX || out.size() > INT32_MAX) return Status::corrupt("bad parameters");
    char nothing = 0;  // lz4 wants an address even for an empty result
    char* to = out.empty() ? &nothing : reinterpret_cast<char*>(out.data());
    const int bytes = LZ4_decompress_safe(reinterpret_cast<const char*>(in.data()), to, static_cast<int>(in.size()),
                                          static_cast<int>(out.size()));
    if (bytes < 0 || static_cast<size_t>(bytes) != out.size()) return Status::corrupt("lz4: damaged block");
    return {};
  }
};

}  // namespace

const Codec& lz4_codec() {
  static const Lz4Codec codec;
  return codec;
}

}  // namespace varve
