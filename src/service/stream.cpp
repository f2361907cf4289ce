#include "service/stream.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>

#include "core/sync.h"

namespace varve {

namespace {
constexpr int kSendBufferBytes = 2 << 20;

class SocketStream final : public ByteStream {
 public:
  SocketStream(UniqueFd socket, Descriptors descriptors)
      : socket_(std::move(socket)), takes_descriptors_(descriptors == Descriptors::taken) {
    ::fcntl(socket_.get(), F_SETFL, ::fcntl(socket_.get(), F_GETFL) | O_NONBLOCK);
    // As much as the system allows: each time that it is full, both sides wait for one another.
    if (::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDBUFFORCE, &kSendBufferBytes, sizeof kSendBufferBytes) != 0)
      ::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes, sizeof kSendBufferBytes);
  }

  Result<size_t> read_some(MutableByteSpan into, Deadline deadline) override {
    while (true) {
      const ssize_t got =
          takes_descriptors_ ? receive_with_descriptor(into) : ::recv(socket_.get(), into.data(), into.size(), 0);
      if (got >= 0) return static_cast<size_t>(got);
      if (errno == EINTR) continue;
      if (errno != EAGAIN) return Status::io_error(Status::from_errno(errno, "receive", "").to_string());
      VARVE_TRY(wait_for(socket_.get(), POLLIN, deadline));
    }
  }

  bool passes_descriptors() const override { return true; }
  UniqueFd take_descriptor() override { return std::move(descriptor_); }
  Status write(std::span<const ByteSpan> parts, Deadline deadline) override { return write_with(-1, parts, deadline); }

  Status write_with(int descriptor, std::span<const ByteSpan> parts, Deadline deadline) override {
    std::array<iovec, 4> vectors{};
    size_t count = 0;
    for (const ByteSpan part : parts) {
      if (part.empty()) continue;
      vectors.at(count++) = {const_cast<std::byte*>(part.data()), part.size()};
    }
    std::span<iovec> left(vectors.data(), count);
    DescriptorSpace space{};
    while (!left.empty()) {
      msghdr message{};
      message.msg_iov = left.data();
      message.msg_iovlen = left.size();
      if (descriptor >= 0) attach(descriptor, message, space);
      const ssize_t put = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0 && errno != EAGAIN) return Status::io_error(Status::from_errno(errno, "send", "").to_string());
      if (put < 0) {
        VARVE_TRY(wait_for(socket_.get(), POLLOUT, deadline));
        continue;
      }
      descriptor = -1;  // it went with the first bytes
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
  struct alignas(cmsghdr) DescriptorSpace {
    char bytes[CMSG_SPACE(sizeof(int))];
  };

  static void attach(int descriptor, msghdr& message, DescriptorSpace& space) {
    message.msg_control = space.bytes;
    message.msg_controllen = sizeof space.bytes;
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }

  /// More than one descriptor at a time does not fit, and is closed by the system.
  ssize_t receive_with_descriptor(MutableByteSpan into) {
    DescriptorSpace space{};
    iovec vector{into.data(), into.size()};
    msghdr message{};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = space.bytes;
    message.msg_controllen = sizeof space.bytes;
    const ssize_t got = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
    if (got < 0) return got;
    const cmsghdr* const header = CMSG_FIRSTHDR(&message);
    if (header == nullptr || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS ||
        header->cmsg_len != CMSG_LEN(sizeof(int)))
      return got;
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
    descriptor_.reset(descriptor);
    return got;
  }

  const UniqueFd socket_;
  const bool takes_descriptors_;
  UniqueFd descriptor_;
};
}  // namespace

Status wait_for(int descriptor, short events, Deadline deadline) {
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - MonotonicClock::now());
    if (left.count() < 0) return Status::io_error("the other side took too long");
    pollfd waited{descriptor, events, 0};
    const int ready = ::poll(&waited, 1, static_cast<int>(std::min<int64_t>(left.count() + 1, INT_MAX)));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return Status::from_errno(errno, "wait for the other side", "");
  }
}

std::unique_ptr<ByteStream> make_socket_stream(UniqueFd socket, Descriptors descriptors) {
  return std::make_unique<SocketStream>(std::move(socket), descriptors);
}

}  // namespace varve
