#include "core/bytes.h"

namespace varve {

void ByteWriter::varint(uint64_t value) {
  while (value >= 0x80) {
    u8(static_cast<uint8_t>(value | 0x80));
    value >>= 7;
  }
  u8(static_cast<uint8_t>(value));
}

void ByteWriter::signed_varint(int64_t value) {
  varint((static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63));
}

void ByteWriter::text(std::string_view value) {
  varint(value.size());
  bytes(as_bytes(value));
}

Result<ByteSpan> ByteReader::bytes(uint64_t count) {
  if (count > remaining()) return Status::corrupt("a field reaches past the end of its record");
  ByteSpan view = data_.subspan(at_, count);
  at_ += count;
  return view;
}

namespace {
template <class T>
Result<T> read_le(ByteReader& reader) {
  VARVE_ASSIGN(ByteSpan raw, reader.bytes(sizeof(T)));
  return load_le<T>(raw.data());
}
}  // namespace

Result<uint8_t> ByteReader::u8() { return read_le<uint8_t>(*this); }
Result<uint16_t> ByteReader::le16() { return read_le<uint16_t>(*this); }
Result<uint32_t> ByteReader::le32() { return read_le<uint32_t>(*this); }
Result<uint64_t> ByteReader::le64() { return read_le<uint64_t>(*this); }

Result<uint64_t> ByteReader::varint() {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (at_end()) return Status::corrupt("a number reaches past the end of its record");
    auto byte = static_cast<uint8_t>(data_[at_++]);
    if (shift == 63 && byte > 1) break;
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if ((byte & 0x80) == 0) return value;
  }
  return Status::corrupt("a number has more than 64 bits");
}

Result<int64_t> ByteReader::signed_varint() {
  VARVE_ASSIGN(uint64_t raw, varint());
  return static_cast<int64_t>((raw >> 1) ^ (~(raw & 1) + 1));
}

Result<std::string_view> ByteReader::text() {
  VARVE_ASSIGN(uint64_t length, varint());
  VARVE_ASSIGN(ByteSpan raw, bytes(length));
  return as_text(raw);
}

Result<uint64_t> ByteReader::count(uint64_t bytes_each_min) {
  VARVE_ASSIGN(uint64_t value, varint());
  if (value > remaining() / bytes_each_min) return Status::corrupt("a count is larger than its record");
  return value;
}

std::string to_hex(ByteSpan bytes) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (std::byte b : bytes) {
    text.push_back(digits[static_cast<uint8_t>(b) >> 4]);
    text.push_back(digits[static_cast<uint8_t>(b) & 15]);
  }
  return text;
}

}  // namespace varve
