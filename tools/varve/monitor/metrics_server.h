#pragma once

#include "monitor/metrics_outlet.h"
#include "service/socket.h"

namespace varve {

/// Answers GET /metrics with what was published last, in the format that is asked for, on a thread of its own.
/// `address` is one of TCP; port 0: any free one, see where().
Result<std::unique_ptr<MetricsOutlet>> open_metrics_server(const ServerAddress& address);

}  // namespace varve
