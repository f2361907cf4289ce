#include "service/wire_frame.h"

#include <fmt/format.h>

#include <cstring>

#include "hash/score.h"

namespace varve {

namespace {
// PROTOCOL.md, "Frame": magic | version u8 | message u8 | flags u8 | reserved u8 | request u64 | fields bytes u32 |
// data bytes u32 | CRC of the fields u32 | CRC of the data u32 | reserved u32 | CRC of the header u32
constexpr std::string_view kMagic = "VRVP";
constexpr size_t kCrcAt = kWireHeaderBytes - 4;
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

}  // namespace varve
