#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/metrics.h"
#include "varve/status.h"

namespace varve {

/// Where facts for monitoring go: into a file that a collector reads, or to who asks for them by HTTP.
class MetricsOutlet {
 public:
  /// `place`: a path with a '/', or one that ends with ".prom"; or a port of this machine alone ("9117"), or
  /// "HOST:PORT", which others reach as well. invalid_argument: it is neither; unsupported: this build has no HTTP;
  /// io_error: the port is taken.
  static Result<std::unique_ptr<MetricsOutlet>> open(const std::string& place);
  static bool is_file(const std::string& place);
  virtual ~MetricsOutlet() = default;
  /// Replaces what was published before. One thread at a time.
  virtual Status publish(const Metrics& metrics) = 0;
  /// For people: the file's path, or "http://127.0.0.1:9117/metrics".
  virtual std::string where() const = 0;
};

}  // namespace varve
