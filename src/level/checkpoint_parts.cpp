#include "level/checkpoint_parts.h"

#include <limits>
#include <string_view>

namespace varve {

void tell_table(ByteWriter& out, uint32_t rank, const ImageTable& table) {
  out.varint(rank);
  out.varint(table.image_bytes);
  out.text(as_text(encode_image_header(table)));
}

Result<ToldTable> told_table(ByteReader& in) {
  ToldTable table;
  VARVE_ASSIGN(const uint64_t rank, in.varint());
  VARVE_ASSIGN(table.image_bytes, in.varint());
  VARVE_ASSIGN(const std::string_view header, in.text());
  if (rank > std::numeric_limits<uint32_t>::max()) return Status::corrupt("a table is of a rank that there cannot be");
  table.rank = static_cast<uint32_t>(rank);
  table.header.assign(as_bytes(header).begin(), as_bytes(header).end());
  return table;
}

Status AlikeTables::add(const ToldTable& table) {
  VARVE_TRY(decode_image_header(table.header, table.image_bytes).status());
  ByteVector told;
  ByteWriter out(told);
  out.le64(table.image_bytes);
  out.bytes(table.header);
  tables_.add(told);
  return {};
}

ImageTable AlikeTables::at(size_t ordinal) const {
  const ByteVector told = tables_.at(ordinal);
  ByteReader in(told);
  const Result<uint64_t> image_bytes = in.le64();
  Result<ImageTable> table = image_bytes.ok() ? decode_image_header(ByteSpan(told).subspan(in.position()), *image_bytes)
                                              : image_bytes.status();
  // It was looked at when it was added.
  return table.ok() ? std::move(*table) : ImageTable();
}

Status HeldParts::read(std::span<const PartRead> reads) {
  for (const PartRead& each : reads) VARVE_TRY(read_part(each));
  return {};
}

}  // namespace varve
