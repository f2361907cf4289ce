#include <lzma.h>

#include <algorithm>
#include <bit>

#include "codec/registry.h"

namespace varve {
namespace {

constexpr int kLzmaDefaultLevel = 6;
constexpr int kLzmaLevelMax = 9;

/// A dictionary as large as the data needs it, a power of two: also what a decoder may be made to allocate.
unsigned dictionary_log2(size_t bytes) {
  return static_cast<unsigned>(std::countr_zero(std::bit_ceil(std::max<size_t>(bytes, LZMA_DICT_SIZE_MIN))));
}

/// Raw LZMA2, the filter of .xz files without their framing.
class LzmaCodec final : public Codec {
 public:
  CodecNumber number() const override { return CodecNumber::lzma; }
  std::string_view name() const override { return "lzma"; }
  bool applies_to(const PackShape&) const override { return true; }

  Status encode(ByteSpan in, const PackShape&, int level, ByteVector& params, ByteVector& out) const override {
    if (level < 0 || level > kLzmaLevelMax) return Status::invalid_argument("lzma has the levels 1 to 9");
    lzma_options_lzma options;
    if (lzma_lzma_preset(&options, static_cast<uint32_t>(level == 0 ? kLzmaDefaultLevel : level))) {
      return Status::unsupported("this liblzma lacks the preset");
    }
    const unsigned log2 = dictionary_log2(in.size());
    options.dict_size = 1u << log2;
    options.pb = 0;  // transposed bytes have no alignment
    const lzma_filter filters[] = {{LZMA_FILTER_LZMA2, &options}, {LZMA_VLI_UNKNOWN, nullptr}};
    ByteWriter(params).u8(static_cast<uint8_t>(log2));

    const size_t before = out.size();
    out.resize(before + in.size() + in.size() / 1024 + 128);  // LZMA2 adds 3 bytes to each 64 KiB it cannot shrink
    size_t bytes = 0;
    const lzma_ret result =
        lzma_raw_buffer_encode(filters, nullptr, reinterpret_cast<const uint8_t*>(in.data()), in.size(),
                               reinterpret_cast<uint8_t*>(out.data() + before), &bytes, out.size() - before);
    if (result != LZMA_OK) return Status::internal("lzma could not encode");
    out.resize(before + bytes);
    return {};
  }

  Status decode(ByteSpan in, ByteSpan params, MutableByteSpan out) const override {
    if (params.size() != 1) return Status::corrupt("bad parameters");
    const auto log2 = static_cast<unsigned>(params[0]);
    if (log2 > dictionary_log2(out.size())) return Status::corrupt("lzma: the dictionary is larger than the data");
    lzma_options_lzma options{};
    options.dict_size = 1u << log2;
    const lzma_filter filters[] = {{LZMA_FILTER_LZMA2, &options}, {LZMA_VLI_UNKNOWN, nullptr}};
    size_t in_used = 0;
    size_t out_used = 0;
    uint8_t nothing = 0;
    uint8_t* to = out.empty() ? &nothing : reinterpret_cast<uint8_t*>(out.data());
    const lzma_ret result = lzma_raw_buffer_decode(filters, nullptr, reinterpret_cast<const uint8_t*>(in.data()),
                                                   &in_used, in.size(), to, &out_used, out.size());
    if (result != LZMA_OK || in_used != in.size() || out_used != out.size())
      return Status::corrupt("lzma: damaged data");
    return {};
  }
};

}  // namespace

const Codec& lzma_codec() {
  static const LzmaCodec codec;
  return codec;
}

}  // namespace varve
