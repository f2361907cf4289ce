#pragma once

#include <cstdint>

#include "core/bytes.h"

namespace varve {

inline constexpr size_t kWireHeaderBytes = 40;
inline constexpr uint8_t kWireVersion = 1;
inline constexpr uint32_t kWireFieldsBytesMax = 64_KiB;
inline constexpr uint32_t kWireDataBytesMax = 1_MiB;

/// What stands before every message (PROTOCOL.md, "Frame"): a frame is header | fields | data.
struct WireHeader {
  static constexpr uint8_t kReply = 1;       ///< flags
  static constexpr uint8_t kMore = 2;        ///< another frame of the same reply follows
  static constexpr uint8_t kAgain = 4;       ///< the request may have been sent before
  static constexpr uint8_t kDescriptor = 8;  ///< of a reply: a descriptor of the file comes with the first byte

  uint8_t message = 0;
  uint8_t flags = 0;
  uint64_t request = 0;  ///< its number; the reply has the same
  uint32_t fields_bytes = 0;
  uint32_t data_bytes = 0;
  uint32_t fields_crc = 0;
  uint32_t data_crc = 0;

  bool has(uint8_t flag) const { return (static_cast<unsigned>(flags) & flag) != 0; }
};

void encode_wire_header(const WireHeader& header, std::byte (&out)[kWireHeaderBytes]);
/// corrupt: not a frame, damaged, or larger than a frame may be, so that the sizes may be allocated. unsupported:
/// another version.
Result<WireHeader> decode_wire_header(const std::byte (&raw)[kWireHeaderBytes]);

}  // namespace varve
