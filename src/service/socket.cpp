#include "service/socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <memory>

#include "core/sync.h"

namespace varve {

namespace {
Status malformed(std::string_view text, std::string_view what) {
  return Status::invalid_argument(std::string(what), std::string(text), "an address is unix:/path or tcp://host:port");
}

Result<ServerAddress> parse_unix(std::string_view text, std::string_view path) {
  ServerAddress address;
  address.path = std::string(path);
  if (path.empty()) return malformed(text, "the address has no path");
  if (path.find('\0') != std::string_view::npos) return malformed(text, "the path has a zero byte");
  if (path.size() >= sizeof(sockaddr_un{}.sun_path)) {
    return malformed(text, fmt::format("a socket's path has at most {} bytes", sizeof(sockaddr_un{}.sun_path) - 1));
  }
  return address;
}

Result<ServerAddress> parse_tcp(std::string_view text, std::string_view place) {
  ServerAddress address;
  address.kind = ServerAddress::Kind::tcp;
  const size_t colon = place.rfind(':');
  if (colon == std::string_view::npos) return malformed(text, "the address has no port");
  std::string_view host = place.substr(0, colon);
  const std::string_view port = place.substr(colon + 1);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (host.empty() || (!bracketed && host.find(':') != std::string_view::npos) ||
      host.find_first_of("[]/, \t") != std::string_view::npos) {
    return malformed(text, "the address has no host that makes sense");
  }
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (error != std::errc() || end != port.data() + port.size()) return malformed(text, "a port is 0 to 65535");
  address.host = std::string(host);
  return address;
}
}  // namespace

Result<ServerAddress> ServerAddress::parse(std::string_view text) {
  if (text.starts_with(kUnixPrefix)) return parse_unix(text, text.substr(kUnixPrefix.size()));
  if (text.starts_with(kTcpPrefix)) return parse_tcp(text, text.substr(kTcpPrefix.size()));
  return malformed(text, "not the address of a server");
}

std::string ServerAddress::to_string() const {
  if (kind == Kind::unix_socket) return std::string(kUnixPrefix) + path;
  const bool bracketed = host.find(':') != std::string::npos;
  return fmt::format("{}{}{}{}:{}", kTcpPrefix, bracketed ? "[" : "", host, bracketed ? "]" : "", port);
}

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
      VARVE_ASSIGN(const std::optional<size_t> got, read_some_now(into));
      if (got) return *got;
      VARVE_TRY(wait_for(socket_.get(), POLLIN, deadline));
    }
  }

  Result<std::optional<size_t>> read_some_now(MutableByteSpan into) override {
    while (true) {
      const ssize_t got =
          takes_descriptors_ ? receive_with_descriptor(into) : ::recv(socket_.get(), into.data(), into.size(), 0);
      if (got >= 0) return std::optional(static_cast<size_t>(got));
      if (errno == EINTR) continue;
      if (errno == EAGAIN) return std::optional<size_t>();
      return Status::io_error(Status::from_errno(errno, "receive", "").to_string());
    }
  }

  bool takes_output() const override { return is_writable(socket_.get()); }
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

bool is_writable(int descriptor) {
  pollfd asked{descriptor, POLLOUT, 0};
  return ::poll(&asked, 1, 0) != 0;
}

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

namespace {
constexpr int kBacklog = 4096;  // many may come at once; the system takes less if it is told to
constexpr int kIdleSeconds = 60;

struct AddressFreer {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using AddressList = std::unique_ptr<addrinfo, AddressFreer>;

Result<AddressList> resolve(const ServerAddress& address, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int failed = ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &list);
  if (failed == 0) return AddressList(list);
  return Status(failed == EAI_AGAIN ? StatusCode::io_error : StatusCode::not_found,
                std::string("the host is not known: ") + ::gai_strerror(failed), address.to_string());
}

uint16_t port_of(int socket) {
  sockaddr_storage bound{};
  socklen_t bytes = sizeof bound;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &bytes) != 0) return 0;
  if (bound.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(bound).sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in&>(bound).sin_port);
}

Status finish_connecting(int socket, Deadline deadline, const ServerAddress& address) {
  VARVE_TRY(wait_for(socket, POLLOUT, deadline));
  int error = 0;
  socklen_t bytes = sizeof error;
  if (::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
  return error == 0 ? Status() : Status::io_error(std::strerror(error), address.to_string());
}
}  // namespace

void tune_tcp(int socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &kIdleSeconds, sizeof kIdleSeconds);
}

Result<UniqueFd> listen_tcp(ServerAddress& address) {
  VARVE_ASSIGN(const AddressList list, resolve(address, AI_PASSIVE));
  Status failure = Status::io_error("no address to listen at", address.to_string());
  for (const addrinfo* each = list.get(); each != nullptr; each = each->ai_next) {
    UniqueFd listener(::socket(each->ai_family, each->ai_socktype | SOCK_CLOEXEC, each->ai_protocol));
    const int on = 1;
    if (listener.valid()) ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (!listener.valid() || ::bind(listener.get(), each->ai_addr, each->ai_addrlen) != 0 ||
        ::listen(listener.get(), kBacklog) != 0) {
      failure = errno == EADDRINUSE ? Status::busy("another program listens there", address.to_string())
                                    : Status::from_errno(errno, "listen", address.to_string());
      continue;
    }
    if (address.port == 0) address.port = port_of(listener.get());
    return listener;
  }
  return failure;
}

Result<UniqueFd> connect_tcp(const ServerAddress& address, Deadline deadline) {
  VARVE_ASSIGN(const AddressList list, resolve(address, 0));
  Status failure = Status::io_error("no address to connect to", address.to_string());
  for (const addrinfo* each = list.get(); each != nullptr; each = each->ai_next) {
    UniqueFd socket(::socket(each->ai_family, each->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, each->ai_protocol));
    if (!socket.valid()) {
      failure = Status::io_error(std::strerror(errno), address.to_string());
      continue;
    }
    failure = {};
    if (::connect(socket.get(), each->ai_addr, each->ai_addrlen) != 0) {
      failure = errno == EINPROGRESS || errno == EINTR ? finish_connecting(socket.get(), deadline, address)
                                                       : Status::io_error(std::strerror(errno), address.to_string());
    }
    if (!failure.ok()) continue;
    tune_tcp(socket.get());
    return socket;
  }
  return failure;
}

namespace {
constexpr int kConnectSeconds = 5;

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof address.sun_path - 1));
  return address;
}

const sockaddr* generic(const sockaddr_un& address) { return reinterpret_cast<const sockaddr*>(&address); }

UniqueFd new_socket() { return UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

/// Removes a socket to which nobody listens any more.
Status clear(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    return errno == ENOENT ? Status() : Status::from_errno(errno, "look at the socket", path);
  }
  if (!S_ISSOCK(status.st_mode)) return Status::already_exists("there is a file where the socket is to be", path);
  const UniqueFd probe = new_socket();
  const sockaddr_un address = address_of(path);
  if (::connect(probe.get(), generic(address), sizeof address) == 0 || errno == EAGAIN)
    return Status::busy("another server listens there", path);
  if (errno != ECONNREFUSED) return Status::from_errno(errno, "look at the socket", path);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return Status::from_errno(errno, "remove the old socket", path);
  return {};
}
}  // namespace

Result<UniqueFd> listen_unix(const std::string& path) {
  VARVE_TRY(clear(path));
  UniqueFd listener = new_socket();
  if (!listener.valid()) return Status::from_errno(errno, "make a socket", path);
  const sockaddr_un address = address_of(path);
  if (::bind(listener.get(), generic(address), sizeof address) != 0)
    return Status::from_errno(errno, "make the socket", path);
  // Before listen(): nobody has connected yet. The peer's user is checked besides.
  if (::chmod(path.c_str(), 0600) != 0) return Status::from_errno(errno, "restrict the socket to its user", path);
  if (::listen(listener.get(), kBacklog) != 0) return Status::from_errno(errno, "listen", path);
  return listener;
}

Result<UniqueFd> connect_unix(const std::string& path) {
  UniqueFd socket = new_socket();
  if (!socket.valid()) return Status::from_errno(errno, "make a socket", path);
  // A server that accepts nobody lets its queue fill up.
  const timeval patience{kConnectSeconds, 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  const sockaddr_un address = address_of(path);
  int failed = ::connect(socket.get(), generic(address), sizeof address);
  while (failed != 0 && errno == EINTR) failed = ::connect(socket.get(), generic(address), sizeof address);
  if (failed == 0) return socket;
  if (errno == EACCES || errno == EPERM) return Status::from_errno(errno, "connect to the server", path);
  return Status::io_error(fmt::format("no server listens there: {}", std::strerror(errno)), path);
}

Status check_peer(int socket) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0)
    return Status::from_errno(errno, "learn who is at the other end", "");
  if (peer.uid == ::geteuid() || peer.uid == 0) return {};
  return Status(StatusCode::permission_denied, fmt::format("user {} is not served", peer.uid));
}

}  // namespace varve
