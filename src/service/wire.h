#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "core/bytes.h"
#include "service/socket.h"

namespace varve {

inline constexpr size_t kWireHeaderBytes = 40;
inline constexpr uint8_t kWireVersion = 2;
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

/// Sends and receives frames over a stream. One thread at a time.
class Wire {
 public:
  explicit Wire(std::unique_ptr<ByteStream> stream) : stream_(std::move(stream)) {}

  /// Fills in sizes and checksums of `header`.
  Status send(WireHeader header, ByteSpan fields, ByteSpan data, Deadline deadline) {
    return send_with(-1, header, fields, data, deadline);
  }
  /// The same with a descriptor, if the stream passes them; -1: none.
  Status send_with(int descriptor, WireHeader header, ByteSpan fields, ByteSpan data, Deadline deadline);

  struct Head {
    WireHeader header;
    ByteSpan fields;      ///< until the next receive_head()
    bool closed = false;  ///< the other side has closed instead, between two frames
  };
  /// The descriptor that came with the last header that says so; invalid: none came.
  UniqueFd take_descriptor() { return stream_->take_descriptor(); }
  /// Receives header and fields. If the header announces data, receive_data() or skip_data() must follow.
  Result<Head> receive_head(Deadline deadline);
  /// The data of the frame, straight into `into`, which is as large as header.data_bytes says.
  Status receive_data(const WireHeader& header, MutableByteSpan into, Deadline deadline);

  /// Between two frames: as those of the stream.
  bool has_input() const { return stream_->has_input(); }
  void rest() {
    ByteVector().swap(fields_);
    stream_->rest();
  }

 private:
  /// Returns how much came before the other side closed.
  Result<size_t> receive(MutableByteSpan into, Deadline deadline);

  const std::unique_ptr<ByteStream> stream_;
  ByteVector fields_;
};

}  // namespace varve
