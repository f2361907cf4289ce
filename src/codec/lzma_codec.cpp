#include <lzma.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "codec/registry.h"

namespace varve {
namespace {

constexpr int kLzmaDefaultLevel = 6;
constexpr int kLzmaLevelMax = 9;
/// An encoder takes twelve times as much memory as its dictionary.
constexpr unsigned kDictionaryLog2Max = 25;

/// A dictionary as large as the data needs it, a power of two: also what a decoder may be made to allocate.
unsigned dictionary_log2(size_t bytes) {
  return static_cast<unsigned>(std::countr_zero(std::bit_ceil(std::max<size_t>(bytes, LZMA_DICT_SIZE_MIN))));
}

/// log2 of the bytes of the numbers that `in` consists of, as far as statistics of bytes tell: with more than one, what
/// a byte is says the less, the less is said of where in a number it is. 0: bytes that were transposed, text.
unsigned number_log2(ByteSpan in) {
  constexpr size_t kPieceBytes = 4_KiB, kPieces = 8;
  constexpr unsigned kLog2Max = 3;
  if (in.size() < kPieces * kPieceBytes) return 0;
  std::array<std::array<uint32_t, 256>, size_t{1} << kLog2Max> counts{};  // by place in eight bytes
  const size_t gap = (in.size() / kPieces) & ~((size_t{1} << kLog2Max) - 1);
  for (size_t piece = 0; piece < kPieces; ++piece) {
    for (size_t i = 0; i < kPieceBytes; ++i)
      ++counts[i & ((size_t{1} << kLog2Max) - 1)][static_cast<uint8_t>(in[piece * gap + i])];
  }
  unsigned best = 0;
  double least = 0;
  for (unsigned log2 = 0; log2 <= kLog2Max; ++log2) {
    double bits = 0;
    for (size_t place = 0; place < size_t{1} << log2; ++place) {
      std::array<uint32_t, 256> sums{};
      uint32_t all = 0;
      for (size_t at = place; at < counts.size(); at += size_t{1} << log2) {
        for (size_t value = 0; value < sums.size(); ++value) sums[value] += counts[at][value];
      }
      for (const uint32_t sum : sums) all += sum;
      for (const uint32_t sum : sums) {
        if (sum > 0) bits += sum * std::log2(static_cast<double>(all) / sum);
      }
    }
    // Tables of more places seem to say more of any bytes.
    if (log2 == 0 || bits < 0.93 * least) {
      least = bits;
      best = log2;
    }
  }
  return best;
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
    const unsigned log2 = std::min(dictionary_log2(in.size()), kDictionaryLog2Max);
    // An encoder's memory depends on it: no more than there is to be found.
    options.dict_size = std::clamp<uint32_t>(static_cast<uint32_t>(in.size()), LZMA_DICT_SIZE_MIN, 1u << log2);
    // What the level takes for lc is the better without alignment.
    options.pb = number_log2(in);
    options.lp = options.pb;
    if (options.lp > 0) options.lc = 1;
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
