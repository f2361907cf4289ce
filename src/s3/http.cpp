#include "s3/http.h"

#include <curl/curl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <utility>

#include "core/guarded.h"
#include "core/loaded_library.h"
#include "core/quantity.h"
#include "core/sync.h"
#include "varve/version.h"

namespace varve {

namespace {
constexpr size_t kHeadersMax = 200;
constexpr size_t kHeaderBytesMax = 64_KiB;
constexpr long kStallBytesPerSecond = 1000;
constexpr long kReceiveBytes = 512L * 1024;
constexpr long kSendBytes = 512L * 1024;

/// The functions of libcurl, which is loaded when the first transport is made: it draws in thirty other libraries.
struct CurlLibrary : LoadedLibrary {
  explicit CurlLibrary(const LoadedLibrary& library) : LoadedLibrary(library) {}

  decltype(&::curl_global_init) global_init = find("curl_global_init");
  decltype(&::curl_version_info) version_info = find("curl_version_info");
  decltype(&::curl_easy_init) easy_init = find("curl_easy_init");
  decltype(&::curl_easy_cleanup) easy_cleanup = find("curl_easy_cleanup");
  decltype(&::curl_easy_reset) easy_reset = find("curl_easy_reset");
  decltype(&::curl_easy_setopt) easy_setopt = find("curl_easy_setopt");
  decltype(&::curl_easy_getinfo) easy_getinfo = find("curl_easy_getinfo");
  decltype(&::curl_easy_perform) easy_perform = find("curl_easy_perform");
  decltype(&::curl_easy_strerror) easy_strerror = find("curl_easy_strerror");
  decltype(&::curl_slist_append) slist_append = find("curl_slist_append");
  decltype(&::curl_slist_free_all) slist_free_all = find("curl_slist_free_all");

  static Result<CurlLibrary> load() {
    VARVE_ASSIGN(CurlLibrary curl,
                 LoadedLibrary::load<CurlLibrary>(kFile, "S3 service", "install libcurl (Debian: libcurl4)"));
    if (const CURLcode code = curl.global_init(CURL_GLOBAL_DEFAULT); code != CURLE_OK)
      return Status::resource_limit(fmt::format("libcurl does not start: {}", curl.easy_strerror(code)));
    const curl_version_info_data& version = *curl.version_info(CURLVERSION_NOW);
    if (version.version_num < kOldestVersion)
      return Status::unsupported(fmt::format("libcurl {} is too old", version.version), kFile, "install 7.85 or later");
    if ((version.features & CURL_VERSION_SSL) == 0) return Status::unsupported("this libcurl has no TLS", kFile);
    return curl;
  }

 private:
  /// The version of its interface that the header describes.
  static constexpr const char* kFile = "libcurl.so.4";
  static constexpr unsigned kOldestVersion = 0x075500;  // has CURLOPT_PROTOCOLS_STR
};

struct HandleFreer {
  void operator()(CURL* handle) const { curl->easy_cleanup(handle); }
  const CurlLibrary* curl = nullptr;
};
using Handle = std::unique_ptr<CURL, HandleFreer>;

/// What keeps a connection from one request to the next.
struct Connection {
  explicit Connection(Handle made) : handle(std::move(made)) {}
  Handle handle;
  /// The sockets that were opened last: one alone is the connection's, where two addresses were tried at once.
  std::array<int, 2> sockets{-1, -1};

  static int on_socket(void* self, curl_socket_t socket, curlsocktype) {
    auto& sockets = static_cast<Connection*>(self)->sockets;
    sockets = {socket, sockets[0]};
    return CURL_SOCKOPT_OK;
  }
  /// Servers that collect small packets (radosgw, unless it is told otherwise) send the body only when the headers are
  /// acknowledged, which this system would put off by 40 ms. Of a socket that is closed, it does no harm.
  void acknowledge() const {
    const int now = 1;
    for (const int socket : sockets) {
      if (socket >= 0) (void)::setsockopt(socket, IPPROTO_TCP, TCP_QUICKACK, &now, sizeof now);
    }
  }
};

/// One request on its way; what libcurl calls back.
struct Transfer {
  const CurlLibrary& curl;
  Connection& connection;
  const HttpRequest& request;
  HttpReply& reply;
  size_t sent = 0;          ///< of the body
  size_t header_bytes = 0;  ///< of the reply

  /// `act`, whose failure becomes the reply's, and `refusal` the answer to libcurl.
  template <class Act>
  size_t guarded(size_t refusal, const Act& act) {
    const Result<size_t> done = run_guarded([&]() -> Result<size_t> { return act(); });
    if (done.ok()) return *done;
    reply.failure = done.status();
    return refusal;
  }

  CURL* handle() const { return connection.handle.get(); }

  Result<size_t> take_header(std::string_view line) {
    if (trimmed(line).empty()) connection.acknowledge();
    // A new status line: what came before was an interim reply ("100 Continue"), or a proxy's.
    if (line.starts_with("HTTP/")) {
      reply.headers.clear();
      header_bytes = 0;
    }
    header_bytes += line.size();
    if (header_bytes > kHeaderBytesMax || reply.headers.size() >= kHeadersMax)
      return Status::resource_limit("the server's reply has too many headers", request.origin);
    if (const size_t colon = line.find(':'); colon != std::string_view::npos)
      reply.headers.push_back({ascii_lower_case(line.substr(0, colon)), std::string(trimmed(line.substr(colon + 1)))});
    return line.size();
  }

  Result<size_t> take_body(ByteSpan piece) {
    long status = 0;
    curl.easy_getinfo(handle(), CURLINFO_RESPONSE_CODE, &status);
    if (!request.into.empty() && status >= 200 && status < 300) {
      if (piece.size() > request.into.size() - reply.into_bytes)
        return Status::resource_limit("the server sends more than was asked for", request.origin + request.path);
      std::copy(piece.begin(), piece.end(), request.into.begin() + static_cast<std::ptrdiff_t>(reply.into_bytes));
      reply.into_bytes += piece.size();
      return piece.size();
    }
    if (piece.size() > request.body_bytes_max - std::min<uint64_t>(reply.body.size(), request.body_bytes_max)) {
      return Status::resource_limit(
          fmt::format("the server's reply has more than the {} bytes that it may have", request.body_bytes_max),
          request.origin + request.path);
    }
    reply.body.insert(reply.body.end(), piece.begin(), piece.end());
    return piece.size();
  }

  static size_t on_header(char* data, size_t size, size_t count, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    return transfer.guarded(0, [&] { return transfer.take_header({data, size * count}); });
  }
  static size_t on_body(char* data, size_t size, size_t count, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    const ByteSpan piece = as_bytes({data, size * count});
    return transfer.guarded(CURL_WRITEFUNC_ERROR, [&] { return transfer.take_body(piece); });
  }
  static size_t on_send(char* data, size_t size, size_t count, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    const ByteSpan rest = transfer.request.body.subspan(transfer.sent);
    const size_t bytes = std::min(rest.size(), size * count);
    std::copy_n(rest.begin(), bytes, reinterpret_cast<std::byte*>(data));
    transfer.sent += bytes;
    return bytes;
  }
  // A connection that was kept may be dead: libcurl then sends the request again over a new one.
  static int on_seek(void* self, curl_off_t offset, int origin) {
    auto& transfer = *static_cast<Transfer*>(self);
    if (origin != SEEK_SET || offset < 0 || static_cast<uint64_t>(offset) > transfer.request.body.size())
      return CURL_SEEKFUNC_FAIL;
    transfer.sent = static_cast<size_t>(offset);
    return CURL_SEEKFUNC_OK;
  }
  // Called whenever the request is about to go out over a connection, each time.
  static int on_connected(void* self, char*, char*, int, int) {
    ++static_cast<Transfer*>(self)->reply.times_sent;
    return CURL_PREREQFUNC_OK;
  }
};

struct HeaderListFreer {
  void operator()(curl_slist* list) const { curl->slist_free_all(list); }
  const CurlLibrary* curl = nullptr;
};
using HeaderList = std::unique_ptr<curl_slist, HeaderListFreer>;

Status out_of_memory() { return Status::resource_limit("there is no memory for a connection"); }

class CurlTransport final : public HttpTransport {
 public:
  CurlTransport(const CurlLibrary& curl, const CurlOptions& options) : curl_(curl), options_(options) {
    idle_.reserve(options_.connections_max);  // none gets lost when it is given back
  }

  HttpReply exchange(const HttpRequest& request) override {
    HttpReply reply;
    Result<std::unique_ptr<Connection>> taken = take_connection();
    if (!taken.ok()) {
      reply.failure = taken.status();
      return reply;
    }
    const Status done = run_guarded([&] { return perform(**taken, request, reply); });
    if (reply.failure.ok()) reply.failure = done;
    // Its options point to what is gone. Connections and what else was learned stay.
    curl_.easy_reset((*taken)->handle.get());
    give_back(*std::move(taken));
    return reply;
  }

 private:
  Status perform(Connection& connection, const HttpRequest& request, HttpReply& reply) {
    Transfer transfer{curl_, connection, request, reply};
    CURL* const handle = connection.handle.get();
    char text[CURL_ERROR_SIZE] = "";
    VARVE_ASSIGN(const HeaderList headers, header_list(request));
    VARVE_TRY(set_up(transfer, headers.get(), text));
    const CURLcode code = curl_.easy_perform(handle);
    long status = 0;
    curl_.easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
    reply.status = static_cast<int>(status);
    if (code == CURLE_OK) {
      reached_.store(true, std::memory_order_relaxed);
      return {};
    }
    return failure_of(code, text[0] != '\0' ? text : curl_.easy_strerror(code), request.origin);
  }

  Result<HeaderList> header_list(const HttpRequest& request) const {
    HeaderList list(nullptr, {&curl_});
    // libcurl would have large bodies wait for a "100 Continue", a round trip for each.
    std::vector<std::string> lines = {"Expect:"};
    for (const HttpHeader& header : request.headers) {
      // An empty value would have libcurl send no such header at all.
      lines.push_back(header.value.empty() ? header.name + ";" : header.name + ": " + header.value);
    }
    for (const std::string& line : lines) {
      curl_slist* const longer = curl_.slist_append(list.get(), line.c_str());
      if (longer == nullptr) return out_of_memory();
      (void)list.release();
      list.reset(longer);
    }
    return list;
  }

  Status set_up(Transfer& transfer, curl_slist* headers, char* error_text) const {
    CURL* const handle = transfer.handle();
    const HttpRequest& request = transfer.request;
    const std::string url = request.origin + request.path + (request.query.empty() ? "" : "?" + request.query);
    CURLcode failed = CURLE_OK;
    const auto set = [&](CURLoption option, auto value) {
      if (const CURLcode code = curl_.easy_setopt(handle, option, value); code != CURLE_OK) failed = code;
    };
    set(CURLOPT_ERRORBUFFER, error_text);
    set(CURLOPT_URL, url.c_str());
    set(CURLOPT_PATH_AS_IS, 1L);  // what was signed is what is sent
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_USERAGENT, "varve/" VARVE_VERSION_TEXT);
    set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options_.connect_seconds * 1000));
    set(CURLOPT_LOW_SPEED_LIMIT, kStallBytesPerSecond);
    set(CURLOPT_LOW_SPEED_TIME, std::max(1L, static_cast<long>(options_.stall_seconds)));
    set(CURLOPT_TCP_KEEPALIVE, 1L);
    set(CURLOPT_SOCKOPTFUNCTION, &Connection::on_socket);
    set(CURLOPT_SOCKOPTDATA, static_cast<void*>(&transfer.connection));
    set(CURLOPT_BUFFERSIZE, kReceiveBytes);
    set(CURLOPT_UPLOAD_BUFFERSIZE, kSendBytes);
    set(CURLOPT_HTTPHEADER, headers);
    set(CURLOPT_HEADERFUNCTION, &Transfer::on_header);
    set(CURLOPT_HEADERDATA, static_cast<void*>(&transfer));
    set(CURLOPT_WRITEFUNCTION, &Transfer::on_body);
    set(CURLOPT_WRITEDATA, static_cast<void*>(&transfer));
    set(CURLOPT_PREREQFUNCTION, &Transfer::on_connected);
    set(CURLOPT_PREREQDATA, static_cast<void*>(&transfer));
    if (!options_.ca_file.empty()) set(CURLOPT_CAINFO, options_.ca_file.c_str());
    switch (request.method) {
      case HttpMethod::get: set(CURLOPT_HTTPGET, 1L); break;
      case HttpMethod::head: set(CURLOPT_NOBODY, 1L); break;
      case HttpMethod::remove: set(CURLOPT_CUSTOMREQUEST, "DELETE"); break;
      case HttpMethod::put:
      case HttpMethod::post:
        // Both read the body from where it lies; a post is an upload with another name.
        set(CURLOPT_UPLOAD, 1L);
        set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
        set(CURLOPT_READFUNCTION, &Transfer::on_send);
        set(CURLOPT_READDATA, static_cast<void*>(&transfer));
        set(CURLOPT_SEEKFUNCTION, &Transfer::on_seek);
        set(CURLOPT_SEEKDATA, static_cast<void*>(&transfer));
        if (request.method == HttpMethod::post) set(CURLOPT_CUSTOMREQUEST, "POST");
        break;
    }
    if (failed == CURLE_OK) return {};
    if (failed == CURLE_OUT_OF_MEMORY) return out_of_memory();
    return Status::unsupported(fmt::format("libcurl refuses an option: {}", curl_.easy_strerror(failed)), url);
  }

  Status failure_of(CURLcode code, std::string_view text, const std::string& origin) const {
    switch (code) {
      case CURLE_OUT_OF_MEMORY: return out_of_memory();
      case CURLE_URL_MALFORMAT:
      case CURLE_UNSUPPORTED_PROTOCOL:
        return Status::invalid_argument(fmt::format("no request can go there: {}", text), origin);
      case CURLE_COULDNT_RESOLVE_HOST:
      case CURLE_COULDNT_RESOLVE_PROXY:
        // A name that was found once will be found again.
        if (reached_.load(std::memory_order_relaxed)) break;
        return Status::invalid_argument(fmt::format("the server is not known: {}", text), origin,
                                        "check the endpoint, and the proxy, if there is one");
      case CURLE_PEER_FAILED_VERIFICATION:
      case CURLE_SSL_CACERT_BADFILE:
      case CURLE_SSL_ISSUER_ERROR:
      case CURLE_SSL_CERTPROBLEM:
        return Status(StatusCode::permission_denied, fmt::format("the server's certificate is not trusted: {}", text),
                      origin, "AWS_CA_BUNDLE names a file with the certificates to trust");
      default: break;
    }
    return Status::io_error(fmt::format("the server did not answer: {}", text), origin);
  }

  Result<std::unique_ptr<Connection>> take_connection() {
    const MutexLock lock(mutex_);
    while (idle_.empty() && connections_ >= options_.connections_max) given_back_.wait(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<Connection> connection = std::move(idle_.back());
      idle_.pop_back();
      return connection;
    }
    Handle handle(curl_.easy_init(), {&curl_});
    if (!handle) return out_of_memory();
    auto connection = std::make_unique<Connection>(std::move(handle));
    ++connections_;
    return connection;
  }

  void give_back(std::unique_ptr<Connection> connection) {
    {
      const MutexLock lock(mutex_);
      idle_.push_back(std::move(connection));
    }
    given_back_.notify_one();
  }

  const CurlLibrary& curl_;
  const CurlOptions options_;
  std::atomic<bool> reached_{false};  ///< the server answered once
  Mutex mutex_;
  ConditionVariable given_back_;
  /// The one that was used last is taken first: it is the least likely to be dead.
  std::vector<std::unique_ptr<Connection>> idle_ VARVE_GUARDED_BY(mutex_);
  size_t connections_ VARVE_GUARDED_BY(mutex_) = 0;
};
}  // namespace

std::string_view http_method_name(HttpMethod method) {
  switch (method) {
    case HttpMethod::get: return "GET";
    case HttpMethod::head: return "HEAD";
    case HttpMethod::put: return "PUT";
    case HttpMethod::post: return "POST";
    case HttpMethod::remove: return "DELETE";
  }
  return "";
}

std::string ascii_lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return lower;
}

const std::string* HttpReply::header(std::string_view name) const {
  const auto found = std::find_if(headers.begin(), headers.end(), [&](const auto& one) { return one.name == name; });
  return found == headers.end() ? nullptr : &found->value;
}

Result<std::unique_ptr<HttpTransport>> make_curl_transport(const CurlOptions& options) {
  static const Result<CurlLibrary> curl = CurlLibrary::load();
  if (!curl.ok()) return curl.status();
  if (options.connections_max == 0) return Status::invalid_argument("a transport needs a connection at least");
  return std::unique_ptr<HttpTransport>(std::make_unique<CurlTransport>(*curl, options));
}

std::optional<int64_t> seconds_of_date(int year, int month, int day, int hour, int minute, int second) {
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(std::max(month, 0))),
                                         std::chrono::day(static_cast<unsigned>(std::max(day, 0)))};
  if (!date.ok() || year < 1970 || hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 60)
    return std::nullopt;
  const auto time = std::chrono::sys_days(date) + std::chrono::hours(hour) + std::chrono::minutes(minute) +
                    std::chrono::seconds(second);
  return std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count();
}

Result<int64_t> parse_http_date(std::string_view text) {
  static constexpr std::string_view kMonths = "JanFebMarAprMayJunJulAugSepOctNovDec";
  const Status failed = Status::corrupt("not a date of HTTP", std::string(text.substr(0, 40)));
  int day = 0, year = 0, hour = 0, minute = 0, second = 0, end = 0;
  char month[4] = "", zone[4] = "";
  const std::string copy(text.substr(0, 40));
  if (std::sscanf(copy.c_str(), "%*3[A-Za-z], %2d %3[A-Za-z] %4d %2d:%2d:%2d %3[A-Z]%n", &day, month, &year, &hour,
                  &minute, &second, zone, &end) != 7 ||
      static_cast<size_t>(end) != text.size() || std::string_view(zone) != "GMT") {
    return failed;
  }
  const size_t at = kMonths.find(month);
  if (std::string_view(month).size() != 3 || at == std::string_view::npos || at % 3 != 0) return failed;
  const auto seconds = seconds_of_date(year, static_cast<int>(at / 3 + 1), day, hour, minute, second);
  return seconds ? Result<int64_t>(*seconds) : failed;
}

}  // namespace varve
