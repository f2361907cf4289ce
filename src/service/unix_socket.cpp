#include "service/unix_socket.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace varve {

namespace {
constexpr int kBacklog = 128;
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
