#include <algorithm>

#include "codec/numbers.h"
#include "codec/registry.h"

namespace varve {
namespace {

constexpr uint64_t kPeriodMax = 64_KiB;

/// One period for bytes that repeat from end to end; any others are left as they are (period 0).
class ConstantCodec final : public Codec {
 public:
  CodecNumber number() const override { return CodecNumber::constant; }
  std::string_view name() const override { return "constant"; }
  bool applies_to(const PackShape&) const override { return true; }

  Status encode(ByteSpan in, const PackShape& shape, int level, ByteVector& params, ByteVector& out) const override {
    if (level != 0) return Status::invalid_argument("constant has no levels");
    const size_t period = find_period(in, shape.type);
    ByteWriter(params).varint(period);
    ByteWriter(out).bytes(period == 0 ? in : in.first(std::min(period, in.size())));
    return {};
  }

  Status decode(ByteSpan in, ByteSpan params, MutableByteSpan out) const override {
    ByteReader reader(params);
    VARVE_ASSIGN(const uint64_t period, reader.varint());
    if (period > kPeriodMax || !reader.at_end()) return Status::corrupt("bad parameters");
    if (in.size() != (period == 0 ? out.size() : std::min<uint64_t>(period, out.size()))) {
      return Status::corrupt("a constant has another size than it says");
    }
    std::copy(in.begin(), in.end(), out.begin());
    for (size_t done = in.size(); done < out.size();) {
      const size_t count = std::min(done, out.size() - done);
      std::copy_n(out.begin(), count, out.begin() + static_cast<ptrdiff_t>(done));
      done += count;
    }
    return {};
  }
};

bool repeats(ByteSpan bytes, size_t period) {
  return period < bytes.size() && std::memcmp(bytes.data(), bytes.data() + period, bytes.size() - period) == 0;
}

}  // namespace

size_t find_period(ByteSpan bytes, const ElementType& type) {
  for (size_t period : {size_t{1}, size_t{2}, size_t{4}, size_t{8}, size_t{type.bytes}}) {
    if (period <= kPeriodMax && repeats(bytes, period)) return period;
  }
  return 0;
}

const Codec& constant_codec() {
  static const ConstantCodec codec;
  return codec;
}

}  // namespace varve
