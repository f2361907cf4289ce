#pragma once

#include <memory>
#include <vector>

#include "core/process.h"
#include "service/key_file.h"
#include "service/socket.h"

namespace varve {

/// A connection, and by which of the keys the other side has shown itself.
struct SecureStream {
  std::unique_ptr<ByteStream> stream;
  size_t key = 0;
};

/// TLS 1.3 between two programs that share a key, which each proves to the other (PROTOCOL.md, "TLS"). There are no
/// certificates: who lacks the key gets nothing but a refusal. Thread-safe.
class TlsParty {
 public:
  enum class Role : uint8_t { client, server };
  /// A client has one key, a server one or several: a client that does not say which one it has, as earlier ones do
  /// not, has the first. unsupported: this build has no TLS.
  static Result<std::unique_ptr<TlsParty>> create(Role role, std::vector<SharedKey> keys);
  virtual ~TlsParty() = default;
  /// Takes a connected socket, unless it fails: then that stays its owner's, and open. permission_denied: the other
  /// side does not share the key. io_error: the connection failed, or the other side took too long.
  virtual Result<SecureStream> shake_hands(UniqueFd&& socket, Deadline deadline) const = 0;
};

}  // namespace varve
