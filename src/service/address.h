#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "varve/status.h"

namespace varve {

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

}  // namespace varve
