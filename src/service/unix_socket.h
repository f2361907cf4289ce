#pragma once

#include <string>

#include "core/unique_fd.h"
#include "varve/status.h"

namespace varve {

/// A socket that listens at `path`, for this user alone. What a server that is gone has left there is removed. busy:
/// another server listens there.
Result<UniqueFd> listen_unix(const std::string& path);
/// io_error: nobody listens there (any more).
Result<UniqueFd> connect_unix(const std::string& path);
/// Whether the process at the other end may be served: it is of this user, or root. permission_denied otherwise.
Status check_peer(int socket);

}  // namespace varve
