#include <algorithm>

#include "codec/registry.h"

namespace varve {
namespace {

constexpr uint64_t kRotatedBytesMax = 64_KiB;

/// Bytes from the front go to the end, so that what follows begins with a whole number. FORMAT.md, "rotate".
class RotateCodec final : public Codec {
 public:
  CodecNumber number() const override { return CodecNumber::rotate; }
  std::string_view name() const override { return "rotate"; }
  bool applies_to(const PackShape&) const override { return true; }

  /// `level`: how many bytes.
  Status encode(ByteSpan in, const PackShape&, int level, ByteVector& params, ByteVector& out) const override {
    if (level < 0 || static_cast<uint64_t>(level) > kRotatedBytesMax)
      return Status::invalid_argument("rotate moves 0 to 65536 bytes");
    const size_t moved = std::min(static_cast<size_t>(level), in.size());
    ByteWriter(params).varint(moved);
    out.insert(out.end(), in.begin() + static_cast<ptrdiff_t>(moved), in.end());
    out.insert(out.end(), in.begin(), in.begin() + static_cast<ptrdiff_t>(moved));
    return {};
  }

  Status decode(ByteSpan in, ByteSpan params, MutableByteSpan out) const override {
    if (in.size() != out.size()) return Status::corrupt("a filtered stage has another size than it says");
    ByteReader reader(params);
    VARVE_ASSIGN(const uint64_t moved, reader.varint());
    if (moved > kRotatedBytesMax || moved > in.size() || !reader.at_end()) return Status::corrupt("bad parameters");
    std::rotate_copy(in.begin(), in.end() - static_cast<ptrdiff_t>(moved), in.end(), out.begin());
    return {};
  }
};

}  // namespace

const Codec& rotate_codec() {
  static const RotateCodec codec;
  return codec;
}

}  // namespace varve
