#include <algorithm>

#include "codec/kept_room.h"
#include "codec/numbers.h"
#include "codec/plane_kernels.h"
#include "codec/registry.h"

namespace varve {
namespace {

// Bit planes in groups that are as wide as their widest number: what is left of an entropy coder when it may cost no
// more than reading the bytes. After differences, the highest bits of neighbours are zero together, and the lowest are
// noise, which no coder shrinks. The widths alone are worth a real one. FORMAT.md, "planes".

constexpr int kWidthsLevel = 1;
constexpr uint8_t kWidthsCompressed = 4;  ///< in the first parameter, beside the binary logarithm of a number's bytes

struct PlanesParams {
  size_t number_bytes;
  bool widths_compressed;
  uint64_t widths_bytes;
};

struct PlanesRooms {
  KeptRoom planes, widths;
};
PlanesRooms& rooms() {
  thread_local PlanesRooms of_thread;
  return of_thread;
}

Result<PlanesParams> read_params(ByteSpan params) {
  ByteReader reader(params);
  VARVE_ASSIGN(const uint8_t head, reader.u8());
  VARVE_ASSIGN(const uint64_t widths_bytes, reader.varint());
  if (head > (kWidthsCompressed | 3) || !reader.at_end()) return Status::corrupt("bad parameters");
  return PlanesParams{size_t{1} << (head & 3), (head & kWidthsCompressed) != 0, widths_bytes};
}

class PlanesCodec final : public Codec {
 public:
  CodecNumber number() const override { return CodecNumber::planes; }
  std::string_view name() const override { return "planes"; }
  bool applies_to(const PackShape& shape) const override { return is_machine_number(shape.type); }

  Status encode(ByteSpan in, const PackShape& shape, int level, ByteVector& params, ByteVector& out) const override {
    if (level != 0) return Status::invalid_argument("planes has no levels");
    const size_t number_bytes = shape.type.bytes;
    const size_t group_bytes = kernels::kPlaneGroup * number_bytes;
    const size_t groups = in.size() / group_bytes;
    const MutableByteSpan widths = rooms().widths.take(groups);
    const MutableByteSpan planes = rooms().planes.take(groups * group_bytes + kernels::kPlaneSlack);
    const size_t planes_bytes = kernels::pack_planes(number_bytes, in.first(groups * group_bytes), widths, planes);

    const size_t before = out.size();
    ByteVector no_params;
    VARVE_TRY(zstd_codec().encode(widths, {.type = {}, .runs = {}}, kWidthsLevel, no_params, out));
    const bool compressed = out.size() - before < groups;
    if (!compressed) {
      out.resize(before);
      out.insert(out.end(), widths.begin(), widths.end());
    }
    ByteWriter writer(params);
    writer.u8(static_cast<uint8_t>(std::countr_zero(number_bytes) | (compressed ? kWidthsCompressed : 0)));
    writer.varint(out.size() - before);
    const ByteSpan tail = in.subspan(groups * group_bytes);
    out.reserve(out.size() + planes_bytes + tail.size());
    out.insert(out.end(), planes.begin(), planes.begin() + static_cast<ptrdiff_t>(planes_bytes));
    out.insert(out.end(), tail.begin(), tail.end());
    rooms().widths.shrink();
    rooms().planes.shrink();
    return {};
  }

  Status decode(ByteSpan in, ByteSpan params, MutableByteSpan out) const override {
    VARVE_ASSIGN(const PlanesParams head, read_params(params));
    const size_t group_bytes = kernels::kPlaneGroup * head.number_bytes;
    const size_t groups = out.size() / group_bytes;
    const MutableByteSpan tail = out.subspan(groups * group_bytes);
    if (head.widths_bytes > in.size() || tail.size() > in.size() - head.widths_bytes) {
      return Status::corrupt("planes: the body is too short");
    }
    ByteSpan widths = in.first(head.widths_bytes);
    if (head.widths_compressed) {
      const MutableByteSpan room = rooms().widths.take(groups);
      VARVE_TRY(zstd_codec().decode(widths, {}, room).with_context("the widths of planes"));
      widths = room;
    }
    const ByteSpan planes = in.subspan(head.widths_bytes, in.size() - head.widths_bytes - tail.size());
    if (widths.size() != groups || kernels::planes_bytes(head.number_bytes, widths) != planes.size()) {
      return Status::corrupt("planes: the widths do not fit the body");
    }
    kernels::unpack_planes(head.number_bytes, widths, planes, out.first(groups * group_bytes));
    std::copy(in.end() - static_cast<ptrdiff_t>(tail.size()), in.end(), tail.begin());
    rooms().widths.shrink();
    return {};
  }
};

}  // namespace

const Codec& planes_codec() {
  static const PlanesCodec codec;
  return codec;
}

}  // namespace varve
