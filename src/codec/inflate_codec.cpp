#include <algorithm>

#include "codec/deflated.h"
#include "codec/kernels.h"
#include "codec/opened.h"
#include "codec/registry.h"

namespace varve {
namespace {

/// Deflated streams by what they hold. FORMAT.md, "inflate".
class InflateCodec final : public Codec {
 public:
  CodecNumber number() const override { return CodecNumber::inflate; }
  std::string_view name() const override { return "inflate"; }
  bool applies_to(const PackShape& shape) const override { return shape.type.bytes == 1; }

  Status encode(ByteSpan in, const PackShape&, int level, ByteVector& params, ByteVector& out) const override {
    if (level != 0) return Status::invalid_argument("inflate has no levels");
    if (in.size() > kPackBytesMax) return Status::invalid_argument("a pack is larger than its limit");
    const Opened opened = open_deflated(in);
    params.insert(params.end(), opened.params.begin(), opened.params.end());
    const ByteSpan bytes = opened.made_bytes == 0 ? in : opened.bytes;
    out.insert(out.end(), bytes.begin(), bytes.end());
    return {};
  }

  Status decode(ByteSpan in, ByteSpan params, MutableByteSpan out) const override {
    ByteReader reader(params);
    VARVE_ASSIGN(const DeflatedTable table, read_deflated_table(reader, std::max(in.size(), out.size())));
    if (!reader.at_end()) return Status::corrupt("bad parameters");
    const uint64_t content_bytes = table.content_bytes(), made_bytes = table.made_bytes();
    if (content_bytes > in.size() || made_bytes > out.size() || in.size() - content_bytes != out.size() - made_bytes)
      return Status::corrupt("a stage has another size than its deflated streams say");
    ByteSpan rest = in.subspan(content_bytes);
    thread_local Deflater deflater;
    ByteVector planes;
    for (const DeflatedStream& stream : table.streams) {
      if (stream.gap_bytes > rest.size() || stream.gap_bytes + stream.made_bytes > out.size())
        return Status::corrupt("deflated streams are longer than their stage");
      std::copy_n(rest.begin(), stream.gap_bytes, out.begin());
      rest = rest.subspan(stream.gap_bytes);
      out = out.subspan(stream.gap_bytes);
      ByteSpan content = in.first(stream.content_bytes);
      in = in.subspan(stream.content_bytes);
      if (stream.element_bytes > 1) {
        planes.resize(content.size());
        kernels::shuffle(stream.element_bytes, content, planes);
        content = planes;
      }
      if (deflater.make(content, stream.settings, out.first(stream.made_bytes)) != stream.made_bytes)
        return Status::corrupt("a deflated stream is shorter than it says");
      out = out.subspan(stream.made_bytes);
    }
    if (rest.size() != out.size()) return Status::corrupt("deflated streams are longer than their stage");
    std::copy(rest.begin(), rest.end(), out.begin());
    return {};
  }
};

}  // namespace

const Codec& inflate_codec() {
  static const InflateCodec codec;
  return codec;
}

}  // namespace varve
