#include "monitor/metrics_server.h"

namespace varve {

Result<std::unique_ptr<MetricsOutlet>> open_metrics_server(const ServerAddress&) {
  return Status::unsupported("this build serves no metrics over HTTP", "VARVE_WITH_METRICS",
                             "name a file for them, or build with libmicrohttpd");
}

}  // namespace varve
