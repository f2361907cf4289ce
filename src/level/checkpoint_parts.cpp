#include "level/checkpoint_parts.h"

namespace varve {

Status AlikeTables::add(ByteSpan header, uint64_t image_bytes) {
  VARVE_TRY(decode_image_header(header, image_bytes).status());
  ByteVector told;
  ByteWriter out(told);
  out.le64(image_bytes);
  out.bytes(header);
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
