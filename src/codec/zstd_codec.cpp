#include <zstd.h>

#include <algorithm>
#include <array>
#include <memory>

#include "codec/builtin_codecs.h"

namespace varve {
namespace {

constexpr int kDefaultLevel = 1;
constexpr size_t kSegmentBytes = 8_KiB;
constexpr size_t kSampleBytes = 2_KiB;

struct ContextDeleter {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

/// How often each byte value occurs in a sample.
class Histogram {
 public:
  void add(ByteSpan bytes) {
    for (std::byte byte : bytes) ++counts_[static_cast<uint8_t>(byte)];
    total_ += bytes.size();
  }
  void add(const Histogram& other) {
    for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
    total_ += other.total_;
  }
  /// Whether the distributions differ by more than half (of at most 2: the sum of absolute differences). The noise of
  /// kSampleBytes samples is below 0.4.
  bool unlike(const Histogram& other) const {
    const double here = 1.0 / static_cast<double>(total_);
    const double there = 1.0 / static_cast<double>(other.total_);
    double distance = 0;
    for (size_t i = 0; i < counts_.size(); ++i) distance += std::abs(counts_[i] * here - other.counts_[i] * there);
    return distance > 0.5;
  }

 private:
  std::array<uint32_t, 256> counts_{};
  uint64_t total_ = 0;
};

/// Where the statistics of `in` change, as after a transposition: ends of blocks that deserve entropy tables of their
/// own. zstd alone cuts every 128 KiB, which mixes planes and costs 2 to 8 %. The last is in.size(). `planes` equal
/// parts begin blocks for sure if they differ.
std::vector<size_t> block_ends(ByteSpan in, size_t planes) {
  std::vector<size_t> ends;
  Histogram block;
  bool empty = true;
  const size_t plane_bytes = planes > 1 && in.size() / planes >= kSegmentBytes / 4 ? in.size() / planes : in.size();
  for (size_t start = 0; start < in.size();) {
    const size_t to_plane_end = plane_bytes - start % plane_bytes;
    const size_t segment_bytes = to_plane_end < 2 * kSegmentBytes ? to_plane_end : kSegmentBytes;
    Histogram segment;
    const ByteSpan bytes = in.subspan(start, std::min(segment_bytes, in.size() - start));
    segment.add(bytes.first(std::min(kSampleBytes, bytes.size())));
    if (!empty && bytes.size() >= kSampleBytes && segment.unlike(block)) {
      ends.push_back(start);
      block = {};
    }
    block.add(segment);
    empty = false;
    start += bytes.size();
  }
  ends.push_back(in.size());
  return ends;
}

Status failure(size_t code) { return Status::internal(std::string("zstd: ") + ZSTD_getErrorName(code)); }

class ZstdCodec final : public Codec {
 public:
  CodecNumber number() const override { return CodecNumber::zstd; }
  std::string_view name() const override { return "zstd"; }
  bool applies_to(const PackShape&) const override { return true; }

  Status encode(ByteSpan in, const PackShape& shape, int level, ByteVector&, ByteVector& out) const override {
    thread_local std::unique_ptr<ZSTD_CCtx, ContextDeleter> context(ZSTD_createCCtx());
    if (!context) return Status::resource_limit("zstd: out of memory");
    ZSTD_CCtx_reset(context.get(), ZSTD_reset_session_and_parameters);
    level = std::clamp(level == 0 ? kDefaultLevel : level, -7, ZSTD_maxCLevel());
    ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, level);
    ZSTD_CCtx_setPledgedSrcSize(context.get(), in.size());

    const std::vector<size_t> ends = block_ends(in, shape.type.bytes <= 8 ? shape.type.bytes : 1);
    const size_t before = out.size();
    out.resize(before + ZSTD_compressBound(in.size()) + 16 * ends.size());
    ZSTD_outBuffer to{out.data() + before, out.size() - before, 0};
    size_t at = 0;
    for (size_t end : ends) {
      ZSTD_inBuffer from{in.data() + at, end - at, 0};
      const ZSTD_EndDirective directive = end == in.size() ? ZSTD_e_end : ZSTD_e_flush;
      while (true) {
        const size_t left = ZSTD_compressStream2(context.get(), &to, &from, directive);
        if (ZSTD_isError(left)) return failure(left);
        if (left == 0) break;
        if (to.pos == to.size) return Status::internal("zstd needs more room than its bound");
      }
      at = end;
    }
    out.resize(before + to.pos);
    return {};
  }

  Status decode(ByteSpan in, ByteSpan params, MutableByteSpan out) const override {
    thread_local std::unique_ptr<ZSTD_DCtx, ContextDeleter> context(ZSTD_createDCtx());
    if (!context) return Status::resource_limit("zstd: out of memory");
    if (!params.empty()) return Status::corrupt("bad parameters");
    const size_t bytes = ZSTD_decompressDCtx(context.get(), out.data(), out.size(), in.data(), in.size());
    if (ZSTD_isError(bytes)) return Status::corrupt(std::string("zstd: ") + ZSTD_getErrorName(bytes));
    if (bytes != out.size()) return Status::corrupt("zstd: another size than it says");
    return {};
  }
};

}  // namespace

const Codec& zstd_codec() {
  static const ZstdCodec codec;
  return codec;
}

}  // namespace varve
