#include "service/wire.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

#include "hash/score.h"

namespace varve {

namespace {
// PROTOCOL.md, "Frame": magic | version u8 | message u8 | flags u8 | reserved u8 | request u64 | fields bytes u32 |
// data bytes u32 | CRC of the fields u32 | CRC of the data u32 | reserved u32 | CRC of the header u32
constexpr std::string_view kMagic = "VRVP";
constexpr size_t kCrcAt = kWireHeaderBytes - 4;
/// Enough for what has a path or two.
constexpr size_t kFewFieldsBytes = 4_KiB;
constexpr unsigned kKnownFlags = WireHeader::kReply | WireHeader::kMore | WireHeader::kAgain | WireHeader::kDescriptor;
}  // namespace

void encode_wire_header(const WireHeader& header, std::byte (&out)[kWireHeaderBytes]) {
  std::memset(out, 0, sizeof out);
  std::memcpy(out, kMagic.data(), kMagic.size());
  out[4] = std::byte{kWireVersion};
  out[5] = std::byte{header.message};
  out[6] = std::byte{header.flags};
  store_le(out + 8, header.request);
  store_le(out + 16, header.fields_bytes);
  store_le(out + 20, header.data_bytes);
  store_le(out + 24, header.fields_crc);
  store_le(out + 28, header.data_crc);
  store_le(out + kCrcAt, crc32c(ByteSpan(out, kCrcAt)));
}

Result<WireHeader> decode_wire_header(const std::byte (&raw)[kWireHeaderBytes]) {
  if (as_text(ByteSpan(raw, kMagic.size())) != kMagic) return Status::corrupt("the other side does not speak Varve");
  if (load_le<uint32_t>(raw + kCrcAt) != crc32c(ByteSpan(raw, kCrcAt)))
    return Status::corrupt("a message's header does not match its checksum");
  if (raw[4] != std::byte{kWireVersion}) {
    return Status::unsupported(
        fmt::format("the other side speaks version {} of the protocol", std::to_integer<unsigned>(raw[4])), "",
        "use the same Varve on both sides");
  }
  WireHeader header;
  header.message = std::to_integer<uint8_t>(raw[5]);
  header.flags = std::to_integer<uint8_t>(raw[6]);
  header.request = load_le<uint64_t>(raw + 8);
  header.fields_bytes = load_le<uint32_t>(raw + 16);
  header.data_bytes = load_le<uint32_t>(raw + 20);
  header.fields_crc = load_le<uint32_t>(raw + 24);
  header.data_crc = load_le<uint32_t>(raw + 28);
  if ((header.flags & ~kKnownFlags) != 0) return Status::corrupt("a message has flags that no one knows");
  if (header.fields_bytes > kWireFieldsBytesMax || header.data_bytes > kWireDataBytesMax)
    return Status::corrupt("a message is larger than messages are");
  return header;
}

namespace {
Status cut_off() { return Status::io_error("the connection was closed in the middle of a message"); }
}  // namespace

Status Wire::send_with(int descriptor, WireHeader header, ByteSpan fields, ByteSpan data, Deadline deadline) {
  if (fields.size() > kWireFieldsBytesMax || data.size() > kWireDataBytesMax)
    return Status::internal("a message is larger than messages are");
  header.fields_bytes = static_cast<uint32_t>(fields.size());
  header.data_bytes = static_cast<uint32_t>(data.size());
  header.fields_crc = crc32c(fields);
  header.data_crc = crc32c(data);
  const bool passes = descriptor >= 0 && stream_->passes_descriptors();
  if (passes) header.flags |= WireHeader::kDescriptor;
  std::byte raw[kWireHeaderBytes];
  encode_wire_header(header, raw);
  const std::array<ByteSpan, 3> parts{ByteSpan(raw), fields, data};
  return passes ? stream_->write_with(descriptor, parts, deadline) : stream_->write(parts, deadline);
}

Result<Wire::Begun> Wire::advance(std::optional<Deadline> deadline) {
  if (!header_) {
    VARVE_ASSIGN(const Filled filled, fill(raw_, header_bytes_, deadline));
    if (filled == Filled::closed) return header_bytes_ > 0 ? Result<Begun>(cut_off()) : Begun::closed;
    if (filled == Filled::not_yet) return has_begun() ? Begun::partly : Begun::nothing;
    VARVE_ASSIGN(header_, decode_wire_header(raw_));
    fields_bytes_ = 0;
  }
  // Whoever holds many connections has no memory for many fields of each.
  if (!deadline && header_->fields_bytes > kFewFieldsBytes) return Begun::header;
  fields_.resize(header_->fields_bytes);
  VARVE_ASSIGN(const Filled filled, fill(fields_, fields_bytes_, deadline));
  if (filled == Filled::closed) return cut_off();
  return filled == Filled::wholly ? Begun::whole : Begun::partly;
}

Result<Wire::Head> Wire::receive_head(Deadline deadline) {
  VARVE_ASSIGN(const Begun begun, advance(deadline));
  Head head;
  head.closed = begun == Begun::closed;
  if (head.closed) return head;
  head.header = *std::exchange(header_, std::nullopt);
  header_bytes_ = 0;
  if (crc32c(fields_) != head.header.fields_crc) return Status::corrupt("a message does not match its checksum");
  head.fields = fields_;
  return head;
}

Status Wire::receive_data(const WireHeader& header, MutableByteSpan into, Deadline deadline) {
  if (into.size() != header.data_bytes) return Status::internal("the place for a message's data has another size");
  size_t done = 0;
  VARVE_ASSIGN(const Filled filled, fill(into, done, deadline));
  if (filled == Filled::closed) return cut_off();
  if (crc32c(into) != header.data_crc) return Status::corrupt("the data of a message do not match their checksum");
  return {};
}

Result<Wire::Filled> Wire::fill(MutableByteSpan into, size_t& done, std::optional<Deadline> deadline) {
  while (done < into.size()) {
    std::optional<size_t> got;
    if (deadline) {
      VARVE_ASSIGN(got, stream_->read_some(into.subspan(done), *deadline));
    } else {
      VARVE_ASSIGN(got, stream_->read_some_now(into.subspan(done)));
    }
    if (!got) return Filled::not_yet;
    if (*got == 0) return Filled::closed;
    done += *got;
  }
  return Filled::wholly;
}

}  // namespace varve
