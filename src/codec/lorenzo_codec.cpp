#include <algorithm>

#include "codec/numbers.h"
#include "codec/registry.h"

namespace varve {
namespace {

// The Lorenzo predictor in integers: Ibarria, Lindstrom, Rossignac and Szymczak, "Out-of-core compression and
// decompression of large n-dimensional scalar fields", 2003; the map of floats to ordered integers: Lindstrom and
// Isenburg, "Fast and efficient compression of floating-point data", 2006. FORMAT.md, "lorenzo". Taken over the flat
// run, differences need no special case at row ends, and stay exact for any part of an array. What changes its sign
// from number to number jumps through half of all ordered integers each time; with the sign as the lowest bit, it stays
// as near as its size does.

constexpr int kLorenzoLevelMax = 4;
/// Differences along all dimensions, then once more along the fastest: predicts straight lines.
constexpr int kSecondOrderLevel = 4;

std::vector<kernels::DifferenceRun> runs_of_level(const std::vector<NumberRun>& runs, int level) {
  std::vector<kernels::DifferenceRun> result =
      difference_runs(runs, level >= 1 && level <= 3 ? static_cast<size_t>(level) : kPredictedDimensionsMax);
  if (level == kSecondOrderLevel) {
    for (kernels::DifferenceRun& run : result) run.strides[run.stride_count++] = 1;
  }
  return result;
}

class LorenzoCodec final : public Codec {
 public:
  explicit LorenzoCodec(bool sign_last) : sign_last_(sign_last) {}
  CodecNumber number() const override { return sign_last_ ? CodecNumber::signlast : CodecNumber::lorenzo; }
  std::string_view name() const override { return sign_last_ ? "signlast" : "lorenzo"; }
  bool applies_to(const PackShape& shape) const override {
    return is_machine_number(shape.type) && (!sign_last_ || shape.type.kind == ElementKind::floating);
  }

  /// `level`: 1 to 3 take the differences along so many dimensions at most, 4 along all and once more along the
  /// fastest; 0: along all.
  Status encode(ByteSpan in, const PackShape& shape, int level, ByteVector& params, ByteVector& out) const override {
    if (level < 0 || level > kLorenzoLevelMax)
      return Status::invalid_argument(std::string(name()) + " has the levels 0 to 4");
    kernels::NumberFormat format = number_format(shape.type);
    format.sign_last = sign_last_;
    const size_t whole_bytes = in.size() / format.bytes * format.bytes;
    const std::vector<NumberRun> runs = number_runs(shape, whole_bytes / format.bytes);
    ByteWriter writer(params);
    writer.u8(static_cast<uint8_t>(pack_number_format(format) | level << 4));
    write_runs(writer, runs);

    const size_t at = out.size();
    out.insert(out.end(), in.begin(), in.end());
    kernels::difference_forward(format, runs_of_level(runs, level), in.first(whole_bytes),
                                MutableByteSpan(out).subspan(at, whole_bytes));
    return {};
  }

  Status decode(ByteSpan in, ByteSpan params, MutableByteSpan out) const override {
    if (in.size() != out.size()) return Status::corrupt("a filtered stage has another size than it says");
    ByteReader reader(params);
    VARVE_ASSIGN(const uint8_t head, reader.u8());
    VARVE_ASSIGN(kernels::NumberFormat format, unpack_number_format(head & 15));
    format.sign_last = sign_last_;
    if (sign_last_ && !format.floating) return Status::corrupt("integers have their sign where it is");
    const int level = head >> 4;
    if (level > kLorenzoLevelMax) return Status::corrupt("unknown level");
    const size_t whole_bytes = in.size() / format.bytes * format.bytes;
    VARVE_ASSIGN(const std::vector<NumberRun> runs, read_runs(reader, whole_bytes / format.bytes));
    if (!reader.at_end()) return Status::corrupt("bytes are left after the parameters");
    kernels::difference_inverse(format, runs_of_level(runs, level), in.first(whole_bytes), out.first(whole_bytes));
    std::copy(in.begin() + static_cast<ptrdiff_t>(whole_bytes), in.end(),
              out.begin() + static_cast<ptrdiff_t>(whole_bytes));
    return {};
  }

 private:
  const bool sign_last_;
};

}  // namespace

const Codec& lorenzo_codec() {
  static const LorenzoCodec codec(/*sign_last=*/false);
  return codec;
}

const Codec& signlast_codec() {
  static const LorenzoCodec codec(/*sign_last=*/true);
  return codec;
}

}  // namespace varve
