// For stable buffers, which the library may use only as the version that it was built for.
#define ZSTD_STATIC_LINKING_ONLY
#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <memory>

#include "codec/registry.h"

namespace varve {
namespace {

constexpr int kZstdDefaultLevel = 1;
constexpr int kZstdLevelMin = -7;
constexpr size_t kSegmentBytes = 8_KiB;
constexpr size_t kSampleBytes = 2_KiB;
constexpr size_t kRoomKeptMax = 8_MiB;
/// From this level on, all of a longer input is a window in which matches are looked for; the library's own is no
/// larger than this.
constexpr int kFarLevelMin = 2;
constexpr size_t kFarBytesMin = 2_MiB;

struct ContextDeleter {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

/// How often each byte value occurs in a sample.
class Histogram {
 public:
  void add(ByteSpan bytes) {
    // Counts that alternate: the same value twice in a row would wait for its own count to be written.
    std::array<std::array<uint32_t, 256>, 4> counts{};
    size_t i = 0;
    for (; i + 4 <= bytes.size(); i += 4) {
      for (size_t lane = 0; lane < 4; ++lane) ++counts[lane][static_cast<uint8_t>(bytes[i + lane])];
    }
    for (; i < bytes.size(); ++i) ++counts[0][static_cast<uint8_t>(bytes[i])];
    for (size_t value = 0; value < 256; ++value) {
      counts_[value] += counts[0][value] + counts[1][value] + counts[2][value] + counts[3][value];
    }
    total_ += static_cast<uint32_t>(bytes.size());
  }
  void add(const Histogram& other) {
    for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
    total_ += other.total_;
  }
  /// Whether the distributions differ by more than half (of at most 2: the sum of absolute differences). The noise of
  /// kSampleBytes samples is below 0.4.
  bool unlike(const Histogram& other) const {
    const float here = 1.0F / static_cast<float>(total_);
    const float there = 1.0F / static_cast<float>(other.total_);
    constexpr size_t lane_count = 8;  // sums side by side, so that the compiler may use vectors
    std::array<float, lane_count> distances{};
    for (size_t i = 0; i < counts_.size(); i += lane_count) {
      for (size_t lane = 0; lane < lane_count; ++lane) {
        const auto mine = static_cast<float>(static_cast<int32_t>(counts_[i + lane]));
        const auto its = static_cast<float>(static_cast<int32_t>(other.counts_[i + lane]));
        distances[lane] += std::abs(mine * here - its * there);
      }
    }
    float distance = 0;
    for (float part : distances) distance += part;
    return distance > 0.5F;
  }

 private:
  std::array<uint32_t, 256> counts_{};
  uint32_t total_ = 0;  ///< of samples of a pack, so 32 bits hold it
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
    if (level < kZstdLevelMin || level > ZSTD_maxCLevel())
      return Status::invalid_argument(fmt::format("zstd has the levels {} to {}", kZstdLevelMin, ZSTD_maxCLevel()));
    thread_local std::unique_ptr<ZSTD_CCtx, ContextDeleter> context(ZSTD_createCCtx());
    if (!context) return Status::resource_limit("zstd: out of memory");
    ZSTD_CCtx_reset(context.get(), ZSTD_reset_session_and_parameters);
    ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, level == 0 ? kZstdDefaultLevel : level);
    ZSTD_CCtx_setPledgedSrcSize(context.get(), in.size());
    if (level >= kFarLevelMin && in.size() > kFarBytesMin) {
      ZSTD_CCtx_setParameter(context.get(), ZSTD_c_windowLog, std::bit_width(in.size() - 1));
      ZSTD_CCtx_setParameter(context.get(), ZSTD_c_enableLongDistanceMatching, 1);
    }
    if (ZSTD_versionNumber() == ZSTD_VERSION_NUMBER) {
      // Neither input nor output moves, so that nothing need be copied to buffers of the library's own.
      ZSTD_CCtx_setParameter(context.get(), ZSTD_c_stableInBuffer, 1);
      ZSTD_CCtx_setParameter(context.get(), ZSTD_c_stableOutBuffer, 1);
    }

    const std::vector<size_t> ends = block_ends(in, shape.type.bytes <= 8 ? shape.type.bytes : 1);
    // Room for the worst case, kept between calls: it is far more than what comes out, and first touch costs.
    thread_local Buffer room;
    const size_t bytes_max = ZSTD_compressBound(in.size()) + 16 * ends.size();
    if (room.size() < bytes_max) room = Buffer(bytes_max);
    ZSTD_outBuffer to{room.data(), bytes_max, 0};
    ZSTD_inBuffer from{in.data(), 0, 0};
    for (size_t end : ends) {
      from.size = end;
      const ZSTD_EndDirective directive = end == in.size() ? ZSTD_e_end : ZSTD_e_flush;
      while (true) {
        const size_t left = ZSTD_compressStream2(context.get(), &to, &from, directive);
        if (ZSTD_isError(left)) return failure(left);
        if (left == 0) break;
        if (to.pos == to.size) return Status::internal("zstd needs more room than its bound");
      }
    }
    out.insert(out.end(), room.data(), room.data() + to.pos);
    if (room.size() > kRoomKeptMax) room = Buffer();
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
