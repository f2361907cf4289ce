#pragma once

#include "core/unique_fd.h"
#include "service/address.h"
#include "service/stream.h"

namespace varve {

/// A socket that listens at `address`, and in `address.port` the port, if it was 0.
Result<UniqueFd> listen_tcp(ServerAddress& address);
/// A non-blocking connection. io_error: there is none to be had.
Result<UniqueFd> connect_tcp(const ServerAddress& address, Deadline deadline);
/// Small messages go at once, and a peer that has vanished is noticed some time.
void tune_tcp(int socket);

}  // namespace varve
