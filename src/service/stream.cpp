#include "service/stream.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>

namespace varve {

namespace {
constexpr int kSendBufferBytes = 2 << 20;

class SocketStream final : public ByteStream {
 public:
  explicit SocketStream(UniqueFd socket) : socket_(std::move(socket)) {
    ::fcntl(socket_.get(), F_SETFL, ::fcntl(socket_.get(), F_GETFL) | O_NONBLOCK);
    // As much as the system allows: each time that it is full, both sides wait for one another.
    if (::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDBUFFORCE, &kSendBufferBytes, sizeof kSendBufferBytes) != 0)
      ::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes, sizeof kSendBufferBytes);
  }

  Result<size_t> read_some(MutableByteSpan into, Deadline deadline) override {
    while (true) {
      const ssize_t got = ::recv(socket_.get(), into.data(), into.size(), 0);
      if (got >= 0) return static_cast<size_t>(got);
      if (errno == EINTR) continue;
      if (errno != EAGAIN) return Status::io_error(Status::from_errno(errno, "receive", "").to_string());
      VARVE_TRY(wait_for(socket_.get(), POLLIN, deadline));
    }
  }

  Status write(std::span<const ByteSpan> parts, Deadline deadline) override {
    std::array<iovec, 4> vectors{};
    size_t count = 0;
    for (const ByteSpan part : parts) {
      if (part.empty()) continue;
      vectors.at(count++) = {const_cast<std::byte*>(part.data()), part.size()};
    }
    std::span<iovec> left(vectors.data(), count);
    while (!left.empty()) {
      msghdr message{};
      message.msg_iov = left.data();
      message.msg_iovlen = left.size();
      const ssize_t put = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0 && errno != EAGAIN) return Status::io_error(Status::from_errno(errno, "send", "").to_string());
      if (put < 0) {
        VARVE_TRY(wait_for(socket_.get(), POLLOUT, deadline));
        continue;
      }
      auto done = static_cast<size_t>(put);
      while (!left.empty() && done >= left.front().iov_len) {
        done -= left.front().iov_len;
        left = left.subspan(1);
      }
      if (!left.empty()) {
        left.front().iov_base = static_cast<std::byte*>(left.front().iov_base) + done;
        left.front().iov_len -= done;
      }
    }
    return {};
  }

  void wait_readable() override {
    pollfd waited{socket_.get(), POLLIN, 0};
    while (::poll(&waited, 1, -1) < 0 && errno == EINTR) {
    }
  }

 private:
  const UniqueFd socket_;
};
}  // namespace

Status wait_for(int descriptor, short events, Deadline deadline) {
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() < 0) return Status::io_error("the other side took too long");
    pollfd waited{descriptor, events, 0};
    const int ready = ::poll(&waited, 1, static_cast<int>(std::min<int64_t>(left.count() + 1, INT_MAX)));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return Status::from_errno(errno, "wait for the other side", "");
  }
}

std::unique_ptr<ByteStream> make_socket_stream(UniqueFd socket) {
  return std::make_unique<SocketStream>(std::move(socket));
}

}  // namespace varve
