#pragma once

#include <memory>
#include <utility>

#include "service/stream.h"
#include "service/wire_frame.h"

namespace varve {

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

  /// Waits without a limit for the next frame, or for the end.
  void wait() { stream_->wait_readable(); }

 private:
  /// Returns how much came before the other side closed.
  Result<size_t> receive(MutableByteSpan into, Deadline deadline);

  const std::unique_ptr<ByteStream> stream_;
  ByteVector fields_;
};

}  // namespace varve
