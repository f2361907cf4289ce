#include "service/address.h"

#include <fmt/format.h>
#include <sys/un.h>

#include <charconv>

namespace varve {

namespace {
constexpr std::string_view kUnixPrefix = "unix:";
constexpr std::string_view kTcpPrefix = "tcp://";

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

}  // namespace varve
