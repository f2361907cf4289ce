#include "service/record_socket.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace varve {

namespace {
/// A record with its header, the type of its content and its tag.
constexpr size_t kRecordBytes = 5 + 16384 + 1 + 16;
/// Fits into a core's cache beside what is encrypted.
constexpr size_t kHeldBytes = 16 * kRecordBytes;
constexpr size_t kWakeBytesMax = 1024 << 10;
}  // namespace

void RecordSocket::gather() {
  input_.bytes = std::make_unique_for_overwrite<char[]>(kHeldBytes);
  output_.bytes = std::make_unique_for_overwrite<char[]>(kHeldBytes);
}

long RecordSocket::put(const char* data, size_t bytes) {
  if (!output_.bytes || bytes > kHeldBytes) {
    const long flushed = flush();
    return flushed < 0 ? flushed : ::send(socket_, data, bytes, MSG_NOSIGNAL);
  }
  if (bytes > kHeldBytes - output_.end) {
    const long flushed = flush();
    if (flushed < 0) return flushed;
  }
  std::memcpy(output_.bytes.get() + output_.end, data, bytes);
  output_.end += bytes;
  return static_cast<long>(bytes);
}

long RecordSocket::flush() {
  while (output_.begin < output_.end) {
    // OpenSSL's own way to a socket raises SIGPIPE where the other side is gone.
    const ssize_t sent =
        ::send(socket_, output_.bytes.get() + output_.begin, output_.end - output_.begin, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return sent;
    output_.begin += static_cast<size_t>(sent);
  }
  output_.begin = output_.end = 0;
  return 0;
}

void RecordSocket::wake_at(size_t bytes) {
  const int wanted = static_cast<int>(std::min(bytes, kWakeBytesMax));
  if (wanted == wake_bytes_) return;
  // Where it fails, waiting ends earlier.
  if (::setsockopt(socket_, SOL_SOCKET, SO_RCVLOWAT, &wanted, sizeof wanted) == 0) wake_bytes_ = wanted;
}

long RecordSocket::get(char* into, size_t bytes) {
  if (!input_.bytes) return ::recv(socket_, into, bytes, 0);
  if (!has_input()) {
    const ssize_t received = ::recv(socket_, input_.bytes.get(), kHeldBytes, 0);
    if (received <= 0) return received;
    input_.begin = 0;
    input_.end = static_cast<size_t>(received);
  }
  const size_t taken = std::min(bytes, input_.end - input_.begin);
  std::memcpy(into, input_.bytes.get() + input_.begin, taken);
  input_.begin += taken;
  return static_cast<long>(taken);
}

}  // namespace varve
