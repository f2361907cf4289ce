#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/bytes.h"
#include "varve/status.h"

namespace varve {

enum class HttpMethod : uint8_t { get, head, put, post, remove };
/// As it goes over the wire: "GET", "DELETE".
std::string_view http_method_name(HttpMethod method);
/// Names of headers and hosts have no case; other letters than those of ASCII stay.
std::string ascii_lower_case(std::string_view text);

struct HttpHeader {
  std::string name, value;
};

/// One request. What it borrows outlives the exchange.
struct HttpRequest {
  HttpMethod method = HttpMethod::get;
  std::string origin;  ///< scheme, host and, unless it is the scheme's own, port: "https://host:9000"
  std::string path;    ///< as it goes over the wire: "/bucket/key"
  std::string query;   ///< likewise, without its "?"; empty: none
  std::vector<HttpHeader> headers;
  ByteSpan body;         ///< of put and post
  MutableByteSpan into;  ///< takes the body of a reply of status 2xx, if not empty
  /// Of a body that goes to HttpReply::body.
  uint64_t body_bytes_max = 1_MiB;
};

/// What came of a request.
struct HttpReply {
  /// OK: a whole reply came, whatever its status. io_error: none did, which may pass. Others will not pass:
  /// invalid_argument (no such host), permission_denied (a certificate), resource_limit (a reply without end).
  Status failure;
  /// How often the request left this machine, at least in part. 0: it can have had no effect. Above 1: it was sent
  /// again without a reply to the earlier one, which may have had one.
  uint32_t times_sent = 0;

  int status = 0;                   ///< 200, 404, ...
  std::vector<HttpHeader> headers;  ///< names in lower case, values without blanks around them
  ByteVector body;                  ///< unless it went to HttpRequest::into
  uint64_t into_bytes = 0;          ///< how many went there

  /// The first of this name, in lower case; null if there is none.
  const std::string* header(std::string_view name) const;
  uint64_t body_bytes() const { return body.size() + into_bytes; }
};

/// Carries requests to a server and replies back: over the network, or to a simulated one. Redirects are replies like
/// others. Thread-safe.
class HttpTransport {
 public:
  virtual ~HttpTransport() = default;
  virtual HttpReply exchange(const HttpRequest& request) = 0;
};

struct CurlOptions {
  std::string ca_file;          ///< certificates to trust, as PEM; empty: those of the system
  double connect_seconds = 10;  ///< for a connection, with TLS
  double stall_seconds = 30;    ///< a transfer that is slower than 1 kB/s for so long has failed
  size_t connections_max = 16;  ///< at once; further requests wait for one. Connections are kept for later requests
};

/// HTTP/1.1 by libcurl, which takes proxies from the environment (https_proxy, no_proxy, ...). unsupported: the system
/// has no libcurl, or too old a one, or one without TLS.
Result<std::unique_ptr<HttpTransport>> make_curl_transport(const CurlOptions& options);

/// Seconds since 1970 of a date and a time of UTC; none: there is no such, or it was earlier. A leap second is the
/// first second of the next minute.
std::optional<int64_t> seconds_of_date(int year, int month, int day, int hour, int minute, int second);
/// Seconds since 1970 of "Sun, 06 Nov 1994 08:49:37 GMT", the only form that servers may send. corrupt: not one.
Result<int64_t> parse_http_date(std::string_view text);

}  // namespace varve
