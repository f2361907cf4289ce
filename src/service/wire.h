#pragma once

#include <cstdint>
#include <memory>
#include <optional>
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

  /// How much has come of the next header and its fields. `header`: that alone, of fields that are many.
  enum class Begun : uint8_t { nothing, partly, header, whole, closed };
  /// Takes what has come of them, without waiting, to receive the rest in another call.
  Result<Begun> begin_head() { return advance(std::nullopt); }
  /// After `header` or `whole`: the header that has come.
  const WireHeader& coming() const { return *header_; }
  /// Whether a frame has come in part, as far as begin_head() has met it.
  bool has_begun() const { return header_bytes_ > 0 || stream_->has_input(); }

  struct Head {
    WireHeader header;
    ByteSpan fields;      ///< until the next frame's are received
    bool closed = false;  ///< the other side has closed instead, between two frames
  };
  /// The descriptor that came with the last header that says so; invalid: none came.
  UniqueFd take_descriptor() { return stream_->take_descriptor(); }
  /// Receives header and fields. If the header announces data, receive_data() or skip_data() must follow.
  Result<Head> receive_head(Deadline deadline);
  /// The data of the frame, straight into `into`, which is as large as header.data_bytes says.
  Status receive_data(const WireHeader& header, MutableByteSpan into, Deadline deadline);

  /// As that of the stream.
  bool takes_output() const { return stream_->takes_output(); }
  /// Between two frames: as that of the stream.
  bool has_input() const { return stream_->has_input(); }
  /// Between two frames, or after begin_head(): as that of the stream.
  void rest() {
    if (!header_) ByteVector().swap(fields_);
    stream_->rest();
  }

 private:
  enum class Filled : uint8_t { not_yet, wholly, closed };
  /// Goes on to fill `into`, of which `done` bytes are there. Without a deadline it does not wait: not_yet.
  Result<Filled> fill(MutableByteSpan into, size_t& done, std::optional<Deadline> deadline);
  /// Receives more of header and fields; with a deadline, all of it.
  Result<Begun> advance(std::optional<Deadline> deadline);

  const std::unique_ptr<ByteStream> stream_;
  // Of the frame that is coming.
  std::byte raw_[kWireHeaderBytes] = {};
  size_t header_bytes_ = 0, fields_bytes_ = 0;  ///< that have come
  std::optional<WireHeader> header_;            ///< once it has come
  ByteVector fields_;
};

}  // namespace varve
