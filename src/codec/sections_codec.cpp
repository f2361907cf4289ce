#include <algorithm>

#include "codec/registry.h"

namespace varve {
namespace {

// FORMAT.md, "sections".
void write_section(ByteWriter& params, uint64_t bytes, ByteSpan recipe, uint64_t body_bytes) {
  params.varint(bytes);
  params.varint(body_bytes);
  params.varint(recipe.size());
  params.bytes(recipe);
}

/// Bytes of several kinds, one behind the other, each by the chain that suits it.
class SectionsCodec final : public Codec {
 public:
  CodecNumber number() const override { return CodecNumber::sections; }
  std::string_view name() const override { return "sections"; }
  bool applies_to(const PackShape&) const override { return true; }

  /// As one section, as it is: which chains suit what, others know (joined()).
  Status encode(ByteSpan in, const PackShape&, int level, ByteVector& params, ByteVector& out) const override {
    if (level != 0) return Status::invalid_argument("sections has no levels");
    ByteWriter writer(params);
    writer.varint(1);
    write_section(writer, in.size(), std::vector{std::byte{0}}, in.size());
    out.insert(out.end(), in.begin(), in.end());
    return {};
  }

  Status decode(ByteSpan in, ByteSpan params, MutableByteSpan out) const override {
    ByteReader reader(params);
    VARVE_ASSIGN(uint64_t left, reader.count(/*bytes_each_min=*/4));
    for (; left > 0; --left) {
      VARVE_ASSIGN(const uint64_t bytes, reader.varint());
      VARVE_ASSIGN(const uint64_t body_bytes, reader.varint());
      VARVE_ASSIGN(const uint64_t recipe_bytes, reader.varint());
      VARVE_ASSIGN(const ByteSpan recipe, reader.bytes(recipe_bytes));
      if (bytes > out.size() || body_bytes > in.size()) return Status::corrupt("sections are longer than their stage");
      // The first versions wrote a short one before the last, too.
      if (bytes < kSectionBytesMin && left > 2) return Status::corrupt("a section is too short");
      VARVE_TRY(decode_chain(recipe, in.first(body_bytes), out.first(bytes)));
      in = in.subspan(body_bytes);
      out = out.subspan(bytes);
    }
    if (!in.empty() || !out.empty() || !reader.at_end())
      return Status::corrupt("sections are shorter than their stage");
    return {};
  }
};

}  // namespace

EncodedBytes joined(const std::vector<EncodedSection>& sections) {
  EncodedBytes result;
  ByteVector params;
  ByteWriter writer(params);
  writer.varint(sections.size());
  uint64_t bytes = 0;
  for (const auto& [section_bytes, encoded] : sections) {
    write_section(writer, section_bytes, encoded.recipe, encoded.body.size());
    result.body.insert(result.body.end(), encoded.body.begin(), encoded.body.end());
    bytes += section_bytes;
  }
  result.recipe = {std::byte{0}};
  return behind_stage(CodecNumber::sections, bytes, params, std::move(result));
}

const Codec& sections_codec() {
  static const SectionsCodec codec;
  return codec;
}

}  // namespace varve
