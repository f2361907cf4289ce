#include "codec/kernels.h"
#include "codec/registry.h"

namespace varve {
namespace {

constexpr uint64_t kElementBytesMax = 64_KiB;

using Kernel = void (*)(size_t, ByteSpan, MutableByteSpan);

/// shuffle and bitshuffle differ in their kernels only. FORMAT.md, "shuffle" and "bitshuffle".
class ShuffleCodec final : public Codec {
 public:
  ShuffleCodec(CodecNumber number, std::string_view name, Kernel forward, Kernel inverse)
      : number_(number), name_(name), forward_(forward), inverse_(inverse) {}
  CodecNumber number() const override { return number_; }
  std::string_view name() const override { return name_; }
  bool applies_to(const PackShape&) const override { return true; }

  /// `level` is the size of an element in bytes, 0 that of the shape's type.
  Status encode(ByteSpan in, const PackShape& shape, int level, ByteVector& params, ByteVector& out) const override {
    if (level < 0 || static_cast<uint64_t>(level) > kElementBytesMax) {
      return Status::invalid_argument("elements have from 1 to 65536 bytes");
    }
    const uint64_t typed_bytes = shape.type.bytes <= kElementBytesMax ? shape.type.bytes : 1;
    const uint64_t element_bytes = level == 0 ? typed_bytes : static_cast<uint64_t>(level);
    ByteWriter(params).varint(element_bytes);
    const size_t at = out.size();
    out.resize(at + in.size());
    forward_(element_bytes, in, MutableByteSpan(out).subspan(at));
    return {};
  }

  Status decode(ByteSpan in, ByteSpan params, MutableByteSpan out) const override {
    if (in.size() != out.size()) return Status::corrupt("a filtered stage has another size than it says");
    ByteReader reader(params);
    VARVE_ASSIGN(const uint64_t element_bytes, reader.varint());
    if (element_bytes == 0 || element_bytes > kElementBytesMax || !reader.at_end())
      return Status::corrupt("bad parameters");
    inverse_(element_bytes, in, out);
    return {};
  }

 private:
  CodecNumber number_;
  std::string_view name_;
  Kernel forward_;
  Kernel inverse_;
};

}  // namespace

const Codec& shuffle_codec() {
  static const ShuffleCodec codec(CodecNumber::shuffle, "shuffle", kernels::shuffle, kernels::unshuffle);
  return codec;
}

const Codec& bitshuffle_codec() {
  static const ShuffleCodec codec(CodecNumber::bitshuffle, "bitshuffle", kernels::bit_shuffle, kernels::bit_unshuffle);
  return codec;
}

}  // namespace varve
