#include "service/tcp_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace varve {

namespace {
constexpr int kBacklog = 128;
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

}  // namespace varve
