#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>

#include "core/bytes.h"
#include "core/sync.h"
#include "core/unique_fd.h"

namespace varve {

/// Until when something must be done.
using Deadline = Moment;
inline Deadline after_seconds(double seconds) {
  return MonotonicClock::now() +
         std::chrono::duration_cast<MonotonicClock::duration>(std::chrono::duration<double>(seconds));
}

/// Bytes both ways between two programs. One thread at a time. After a failure, or a missed deadline, it is of no more
/// use.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// Reads at least one byte, and returns how many; 0: the other side has closed. `into` is no larger than what the
  /// other side is about to send, so that it may also wait for more of it. io_error: the connection failed, or nothing
  /// came in time.
  virtual Result<size_t> read_some(MutableByteSpan into, Deadline deadline) = 0;
  /// Writes all parts, one after another.
  virtual Status write(std::span<const ByteSpan> parts, Deadline deadline) = 0;
  /// Whether a descriptor can go to the other side, and come from there.
  virtual bool passes_descriptors() const { return false; }
  /// The same as write(), with a descriptor of this process, which the other side gets a copy of.
  virtual Status write_with(int descriptor, std::span<const ByteSpan> parts, Deadline deadline) {
    (void)descriptor;
    return write(parts, deadline);
  }
  /// The descriptor that came last with what was read; invalid: none came since it was asked for.
  virtual UniqueFd take_descriptor() { return {}; }
  /// Waits without a limit until something can be read, or the other side has closed.
  virtual void wait_readable() = 0;
};

/// Waits until the descriptor is ready for `events` (POLLIN, POLLOUT). io_error: not in time.
Status wait_for(int descriptor, short events, Deadline deadline);

enum class Descriptors : uint8_t { refused, taken };
/// A connected socket, which becomes non-blocking. For Unix sockets; TCP goes through TLS only (tcp_tls.h). Only who
/// wants descriptors takes those that the other side sends.
std::unique_ptr<ByteStream> make_socket_stream(UniqueFd socket, Descriptors descriptors = Descriptors::refused);

}  // namespace varve
