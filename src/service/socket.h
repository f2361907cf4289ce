#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/bytes.h"
#include "core/process.h"
#include "core/sync.h"
#include "varve/status.h"

namespace varve {

/// How addresses of servers begin.
inline constexpr std::string_view kUnixPrefix = "unix:";
inline constexpr std::string_view kTcpPrefix = "tcp://";

/// Where a server listens: `unix:/path` or `tcp://host:port` (of IPv6: `tcp://[::1]:port`).
struct ServerAddress {
  enum class Kind : uint8_t { unix_socket, tcp };
  Kind kind = Kind::unix_socket;
  std::string path;  ///< of a Unix socket
  std::string host;  ///< of TCP, without brackets
  uint16_t port = 0;

  /// invalid_argument for anything else.
  static Result<ServerAddress> parse(std::string_view text);
  std::string to_string() const;
  bool operator==(const ServerAddress&) const = default;
};

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
  /// The same of what is there already; nothing: as yet nothing is. Of streams that are never waited for: read_some().
  virtual Result<std::optional<size_t>> read_some_now(MutableByteSpan into) {
    VARVE_ASSIGN(const size_t got, read_some(into, Deadline::max()));
    return std::optional<size_t>(got);
  }
  /// Writes all parts, one after another.
  virtual Status write(std::span<const ByteSpan> parts, Deadline deadline) = 0;
  /// Whether a few bytes that are written now need not wait for the other side to take what was written before.
  virtual bool takes_output() const { return true; }
  /// Whether a descriptor can go to the other side, and come from there.
  virtual bool passes_descriptors() const { return false; }
  /// The same as write(), with a descriptor of this process, which the other side gets a copy of.
  virtual Status write_with(int descriptor, std::span<const ByteSpan> parts, Deadline deadline) {
    (void)descriptor;
    return write(parts, deadline);
  }
  /// The descriptor that came last with what was read; invalid: none came since it was asked for.
  virtual UniqueFd take_descriptor() { return {}; }
  /// Whether something has come that was not read yet, and that no look at the socket shows.
  virtual bool has_input() const { return false; }
  /// Before a long wait: gives back what memory it can do without. What has come and was not read yet stays.
  virtual void rest() {}
};

/// Whether the descriptor takes output, or has failed.
bool is_writable(int descriptor);
/// Waits until the descriptor is ready for `events` (POLLIN, POLLOUT). io_error: not in time.
Status wait_for(int descriptor, short events, Deadline deadline);

enum class Descriptors : uint8_t { refused, taken };
/// A connected socket, which becomes non-blocking. For Unix sockets; TCP goes through TLS only (tcp_tls.h). Only who
/// wants descriptors takes those that the other side sends.
std::unique_ptr<ByteStream> make_socket_stream(UniqueFd socket, Descriptors descriptors = Descriptors::refused);

/// A socket that listens at `address`, and in `address.port` the port, if it was 0.
Result<UniqueFd> listen_tcp(ServerAddress& address);
/// A non-blocking connection. io_error: there is none to be had.
Result<UniqueFd> connect_tcp(const ServerAddress& address, Deadline deadline);
/// Small messages go at once, and a peer that has vanished is noticed some time.
void tune_tcp(int socket);

/// A socket that listens at `path`, for this user alone. What a server that is gone has left there is removed. busy:
/// another server listens there.
Result<UniqueFd> listen_unix(const std::string& path);
/// io_error: nobody listens there (any more).
Result<UniqueFd> connect_unix(const std::string& path);
/// Whether the process at the other end may be served: it is of this user, or root. permission_denied otherwise.
Status check_peer(int socket);

}  // namespace varve
