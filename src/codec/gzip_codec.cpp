#include <libdeflate.h>

#include <array>
#include <memory>

#include "codec/chunk_formats.h"
#include "codec/registry.h"

namespace varve {
namespace {

constexpr int kGzipDefaultLevel = 6;
constexpr int kGzipLevelMax = 12;

struct CompressorDeleter {
  void operator()(libdeflate_compressor* compressor) const { libdeflate_free_compressor(compressor); }
};
struct DecompressorDeleter {
  void operator()(libdeflate_decompressor* decompressor) const { libdeflate_free_decompressor(decompressor); }
};

libdeflate_compressor* compressor_of(int level) {
  thread_local std::array<std::unique_ptr<libdeflate_compressor, CompressorDeleter>, kGzipLevelMax + 1> compressors;
  auto& compressor = compressors[static_cast<size_t>(level)];
  if (!compressor) compressor.reset(libdeflate_alloc_compressor(level));
  return compressor.get();
}

/// By one of libdeflate's functions: all of `in`, to exactly `out`.
template <class Decompress>
Status decode_whole(Decompress decompress, ByteSpan in, MutableByteSpan out, const char* damaged) {
  thread_local std::unique_ptr<libdeflate_decompressor, DecompressorDeleter> decompressor(
      libdeflate_alloc_decompressor());
  if (!decompressor) return Status::resource_limit("gzip: out of memory");
  size_t in_used = 0;
  size_t out_used = 0;
  std::byte nothing{};  // libdeflate wants an address even for an empty result
  const libdeflate_result result = decompress(decompressor.get(), in.data(), in.size(),
                                              out.empty() ? &nothing : out.data(), out.size(), &in_used, &out_used);
  if (result != LIBDEFLATE_SUCCESS || in_used != in.size() || out_used != out.size()) return Status::corrupt(damaged);
  return {};
}

/// One member as of RFC 1952, which gzip itself can read.
class GzipCodec final : public Codec {
 public:
  CodecNumber number() const override { return CodecNumber::gzip; }
  std::string_view name() const override { return "gzip"; }
  bool applies_to(const PackShape&) const override { return true; }

  Status encode(ByteSpan in, const PackShape&, int level, ByteVector&, ByteVector& out) const override {
    if (level < 0 || level > kGzipLevelMax) return Status::invalid_argument("gzip has the levels 1 to 12");
    libdeflate_compressor* compressor = compressor_of(level == 0 ? kGzipDefaultLevel : level);
    if (compressor == nullptr) return Status::resource_limit("gzip: out of memory");
    const size_t before = out.size();
    out.resize(before + libdeflate_gzip_compress_bound(compressor, in.size()));
    const size_t bytes =
        libdeflate_gzip_compress(compressor, in.data(), in.size(), out.data() + before, out.size() - before);
    if (bytes == 0) return Status::internal("gzip needs more room than its bound");
    out.resize(before + bytes);
    return {};
  }

  Status decode(ByteSpan in, ByteSpan params, MutableByteSpan out) const override {
    if (!params.empty()) return Status::corrupt("bad parameters");
    return decode_whole(libdeflate_gzip_decompress_ex, in, out, "gzip: damaged member");
  }
};

}  // namespace

Status decode_zlib(ByteSpan in, MutableByteSpan out) {
  constexpr std::byte has_dictionary{0x20};
  if (in.size() >= 2 && (in[1] & has_dictionary) != std::byte{0})
    return Status::unsupported("streams of zlib with a dictionary");
  return decode_whole(libdeflate_zlib_decompress_ex, in, out, "a stream of zlib is damaged");
}

uint32_t gzip_crc32(ByteSpan bytes, uint32_t before) {
  // Without an address, it begins anew.
  return bytes.empty() ? before : libdeflate_crc32(before, bytes.data(), bytes.size());
}

const Codec& gzip_codec() {
  static const GzipCodec codec;
  return codec;
}

}  // namespace varve
