#include "service/record_socket.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
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

namespace {
/// What sockets that rest have left to this thread: of a server's many connections, few are at work.
thread_local std::array<std::unique_ptr<char[]>, 2> spare;

std::unique_ptr<char[]> take_memory() {
  for (auto& one : spare) {
    if (one) return std::move(one);
  }
  return std::make_unique_for_overwrite<char[]>(kHeldBytes);
}

void leave_memory(std::unique_ptr<char[]> memory) {
  for (auto& one : spare) {
    if (!one) return one.swap(memory);
  }
}
}  // namespace

void RecordSocket::gather() {
  input_.bytes = take_memory();
  output_.bytes = take_memory();
  gathers_ = true;
}

void RecordSocket::rest() {
  wake_at(1);
  if (!has_input()) leave_memory(std::move(input_.bytes));
  leave_memory(std::move(output_.bytes));
}

long RecordSocket::put(const char* data, size_t bytes) {
  if (gathers_ && !output_.bytes) output_.bytes = take_memory();
  if (!gathers_ || bytes > kHeldBytes) {
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
  if (!gathers_) return ::recv(socket_, into, bytes, 0);
  if (!has_input()) {
    if (!input_.bytes) input_.bytes = take_memory();
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
