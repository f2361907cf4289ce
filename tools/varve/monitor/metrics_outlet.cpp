#include "monitor/metrics_outlet.h"

#include <algorithm>

#include "monitor/metrics_server.h"
#include "service/socket.h"

namespace varve {

namespace {
class FileOutlet final : public MetricsOutlet {
 public:
  explicit FileOutlet(std::string path) : path_(std::move(path)) {}
  Status publish(const Metrics& metrics) override { return write_metrics_file(path_, metrics); }
  std::string where() const override { return path_; }

 private:
  const std::string path_;
};

bool is_port(std::string_view text) {
  return !text.empty() && text.size() <= 5 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}
}  // namespace

bool MetricsOutlet::is_file(const std::string& place) {
  return place.find('/') != std::string::npos || place.ends_with(".prom");
}

Result<std::unique_ptr<MetricsOutlet>> MetricsOutlet::open(const std::string& place) {
  if (is_file(place)) {
    auto file = std::make_unique<FileOutlet>(place);
    VARVE_TRY(file->publish({}));  // else it would be told too late that the folder is missing
    return std::unique_ptr<MetricsOutlet>(std::move(file));
  }
  const Result<ServerAddress> address =
      ServerAddress::parse("tcp://" + (is_port(place) ? "127.0.0.1:" + place : place));
  if (!address.ok())
    return Status::invalid_argument("metrics go to a file, a port or HOST:PORT", place,
                                    "for example /var/lib/prometheus/node-exporter/varve.prom, or 9117");
  return open_metrics_server(*address);
}

}  // namespace varve
