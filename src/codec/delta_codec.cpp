#include <algorithm>

#include "codec/numbers.h"
#include "codec/registry.h"

namespace varve {
namespace {

constexpr uint64_t kDistanceMax = 64_KiB;

/// The widest machine number that fits a distance in bytes evenly.
uint32_t widest_number(uint64_t distance) {
  for (uint32_t bytes : {8u, 4u, 2u}) {
    if (distance % bytes == 0) return bytes;
  }
  return 1;
}

class DeltaCodec final : public Codec {
 public:
  CodecNumber number() const override { return CodecNumber::delta; }
  std::string_view name() const override { return "delta"; }
  bool applies_to(const PackShape&) const override { return true; }

  /// `level` is the distance in bytes to the number that is subtracted, 0 the one before. Of bytes whose type is
  /// unknown, and of elements that do not divide the distance, numbers as wide as does.
  Status encode(ByteSpan in, const PackShape& shape, int level, ByteVector& params, ByteVector& out) const override {
    if (level < 0 || static_cast<uint64_t>(level) > kDistanceMax) {
      return Status::invalid_argument("delta reaches from 1 to 65536 bytes back");
    }
    kernels::NumberFormat format;
    if (is_machine_number(shape.type)) format = number_format(shape.type);
    format.floating = false;
    const uint64_t distance = level == 0 ? format.bytes : static_cast<uint64_t>(level);
    if (!is_machine_number(shape.type) || distance % format.bytes != 0) format = {.bytes = widest_number(distance)};
    ByteWriter writer(params);
    writer.u8(pack_number_format(format));
    writer.varint(distance / format.bytes);

    const size_t whole_bytes = in.size() / format.bytes * format.bytes;
    const size_t at = out.size();
    out.insert(out.end(), in.begin(), in.end());
    const kernels::DifferenceRun run{
        .elements = whole_bytes / format.bytes, .strides = {distance / format.bytes}, .stride_count = 1};
    kernels::difference_forward(format, {&run, 1}, in.first(whole_bytes),
                                MutableByteSpan(out).subspan(at, whole_bytes));
    return {};
  }

  Status decode(ByteSpan in, ByteSpan params, MutableByteSpan out) const override {
    if (in.size() != out.size()) return Status::corrupt("a filtered stage has another size than it says");
    ByteReader reader(params);
    VARVE_ASSIGN(const uint8_t code, reader.u8());
    VARVE_ASSIGN(const kernels::NumberFormat format, unpack_number_format(code));
    VARVE_ASSIGN(const uint64_t stride, reader.varint());
    if (stride == 0 || stride > kDistanceMax || format.floating || !reader.at_end()) {
      return Status::corrupt("bad parameters");
    }
    const size_t whole_bytes = in.size() / format.bytes * format.bytes;
    const kernels::DifferenceRun run{.elements = whole_bytes / format.bytes, .strides = {stride}, .stride_count = 1};
    kernels::difference_inverse(format, {&run, 1}, in.first(whole_bytes), out.first(whole_bytes));
    std::copy(in.begin() + static_cast<ptrdiff_t>(whole_bytes), in.end(),
              out.begin() + static_cast<ptrdiff_t>(whole_bytes));
    return {};
  }
};

}  // namespace

const Codec& delta_codec() {
  static const DeltaCodec codec;
  return codec;
}

}  // namespace varve
