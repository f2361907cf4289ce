#include "monitor/metrics_server.h"

#include <fmt/format.h>
#include <microhttpd.h>
#include <netdb.h>

#include <cerrno>
#include <cstring>

#include "core/loaded_library.h"
#include "core/sync.h"

namespace varve {

namespace {
constexpr unsigned kConnectionsMax = 64, kTimeoutSeconds = 10;

/// The functions of libmicrohttpd, which is loaded where metrics are served: it draws in ten other libraries.
struct HttpLibrary : LoadedLibrary {
  explicit HttpLibrary(const LoadedLibrary& library) : LoadedLibrary(library) {}

  decltype(&::MHD_add_response_header) add_response_header = find("MHD_add_response_header");
  decltype(&::MHD_create_response_from_buffer) create_response_from_buffer = find("MHD_create_response_from_buffer");
  decltype(&::MHD_destroy_response) destroy_response = find("MHD_destroy_response");
  decltype(&::MHD_get_daemon_info) get_daemon_info = find("MHD_get_daemon_info");
  decltype(&::MHD_lookup_connection_value) lookup_connection_value = find("MHD_lookup_connection_value");
  decltype(&::MHD_queue_response) queue_response = find("MHD_queue_response");
  decltype(&::MHD_start_daemon) start_daemon = find("MHD_start_daemon");
  decltype(&::MHD_stop_daemon) stop_daemon = find("MHD_stop_daemon");

  static Result<HttpLibrary> load() {
    return LoadedLibrary::load<HttpLibrary>("libmicrohttpd.so.12", "server for metrics",
                                            "install libmicrohttpd (Debian: libmicrohttpd12)");
  }
};

class MetricsServer final : public MetricsOutlet {
 public:
  explicit MetricsServer(const HttpLibrary& library) : library_(library) {}
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;
  ~MetricsServer() override {
    if (daemon_ != nullptr) library_.stop_daemon(daemon_);
  }

  Status listen(const ServerAddress& address) {
    addrinfo wanted{}, *found = nullptr;
    wanted.ai_family = AF_UNSPEC;
    wanted.ai_socktype = SOCK_STREAM;
    wanted.ai_flags = AI_PASSIVE;
    const std::string port = std::to_string(address.port);
    if (const int error = ::getaddrinfo(address.host.c_str(), port.c_str(), &wanted, &found); error != 0)
      return Status::invalid_argument(fmt::format("no such address: {}", ::gai_strerror(error)), address.host);
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, ::freeaddrinfo);
    const unsigned flags =
        MHD_USE_INTERNAL_POLLING_THREAD | (found->ai_family == AF_INET6 ? static_cast<unsigned>(MHD_USE_IPv6) : 0U);
    errno = 0;
    daemon_ = library_.start_daemon(flags, address.port, nullptr, nullptr, &MetricsServer::answer, this,
                                    MHD_OPTION_SOCK_ADDR, found->ai_addr, MHD_OPTION_CONNECTION_LIMIT, kConnectionsMax,
                                    MHD_OPTION_CONNECTION_TIMEOUT, kTimeoutSeconds, MHD_OPTION_END);
    if (daemon_ == nullptr)
      return Status::from_errno(errno != 0 ? errno : EIO, "listen for metrics", address.to_string());
    const MHD_DaemonInfo* const info = library_.get_daemon_info(daemon_, MHD_DAEMON_INFO_BIND_PORT);
    const unsigned bound = info != nullptr ? info->port : address.port;
    const bool is_v6 = address.host.find(':') != std::string::npos;
    where_ = fmt::format("http://{}:{}/metrics", is_v6 ? "[" + address.host + "]" : address.host, bound);
    return {};
  }

  Status publish(const Metrics& metrics) override {
    const MutexLock lock(mutex_);
    metrics_ = metrics;
    return {};
  }
  std::string where() const override { return where_; }

 private:
  static MHD_Result answer(void* self, MHD_Connection* connection, const char* url, const char* method, const char*,
                           const char*, size_t*, void** begun) {
    return static_cast<const MetricsServer*>(self)->answer(connection, url, method, begun);
  }

  MHD_Result answer(MHD_Connection* connection, const char* url, const char* method, void** begun) const {
    const bool reads = std::strcmp(method, MHD_HTTP_METHOD_GET) == 0 || std::strcmp(method, MHD_HTTP_METHOD_HEAD) == 0;
    // What somebody sends is not waited for.
    if (!reads) return reply(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "GET alone\n", "text/plain");
    // The first call is for the headers alone.
    if (*begun == nullptr) {
      *begun = connection;
      return MHD_YES;
    }
    if (std::strcmp(url, "/metrics") != 0)
      return reply(connection, MHD_HTTP_NOT_FOUND, "metrics are at /metrics\n", "text/plain");
    const char* const accepted = library_.lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
    const bool open = accepted != nullptr && std::strstr(accepted, "application/openmetrics-text") != nullptr;
    const MetricsFormat format = open ? MetricsFormat::open_metrics : MetricsFormat::prometheus;
    return reply(connection, MHD_HTTP_OK, text(format), Metrics::content_type(format));
  }

  std::string text(MetricsFormat format) const {
    const MutexLock lock(mutex_);
    return metrics_.text(format);
  }

  MHD_Result reply(MHD_Connection* connection, unsigned status, std::string text, std::string_view type) const {
    MHD_Response* const response =
        library_.create_response_from_buffer(text.size(), text.data(), MHD_RESPMEM_MUST_COPY);
    if (response == nullptr) return MHD_NO;
    library_.add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, std::string(type).c_str());
    const MHD_Result queued = library_.queue_response(connection, status, response);
    library_.destroy_response(response);
    return queued;
  }

  const HttpLibrary library_;
  MHD_Daemon* daemon_ = nullptr;
  std::string where_;
  mutable Mutex mutex_;
  Metrics metrics_ VARVE_GUARDED_BY(mutex_);
};
}  // namespace

Result<std::unique_ptr<MetricsOutlet>> open_metrics_server(const ServerAddress& address) {
  VARVE_ASSIGN(const HttpLibrary library, HttpLibrary::load());
  auto server = std::make_unique<MetricsServer>(library);
  VARVE_TRY(server->listen(address));
  return std::unique_ptr<MetricsOutlet>(std::move(server));
}

}  // namespace varve
