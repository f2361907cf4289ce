#include "s3/http.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "core/process.h"
#include "core/sync.h"
#include "core/thread_pool.h"
#include "s3/s3_client.h"

namespace varve {
namespace {

/// A server on the loopback that takes one connection after another, and lets the test say what happens on each.
class RawServer {
 public:
  /// One connection: reads and writes what it likes; it is closed when this returns.
  using Serve = std::function<void(RawServer&, int connection)>;

  explicit RawServer(Serve serve)
      : serve_(std::move(serve)), listening_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    EXPECT_EQ(::bind(listening_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listening_.get(), 16), 0);
    EXPECT_EQ(::getsockname(listening_.get(), reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    port_ = ::ntohs(address.sin_port);
    thread_ = start_thread([this] { run(); }).value();
  }
  ~RawServer() {
    ::shutdown(listening_.get(), SHUT_RDWR);
    thread_.join();
  }

  std::string origin() const { return fmt::format("http://127.0.0.1:{}", port_); }
  int connections() const { return connections_; }

  /// One request with its body; empty: the client has closed.
  std::string read_request(int connection) const {
    std::string text;
    char byte;
    while (!text.ends_with("\r\n\r\n")) {
      if (::recv(connection, &byte, 1, 0) != 1) return {};
      text += byte;
    }
    const size_t at = text.find("Content-Length: ");
    if (text.find("Expect: 100-continue") != std::string::npos) write(connection, "HTTP/1.1 100 Continue\r\n\r\n");
    std::string body(at == std::string::npos ? 0 : std::stoul(text.substr(at + 16)), '\0');
    if (!body.empty() && ::recv(connection, body.data(), body.size(), MSG_WAITALL) != static_cast<ssize_t>(body.size()))
      return {};
    text += body;
    return text;
  }
  void write(int connection, const std::string& text) const {
    EXPECT_EQ(::send(connection, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }

 private:
  void run() {
    while (true) {
      const UniqueFd connection(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!connection.valid()) return;
      ++connections_;
      serve_(*this, connection.get());
    }
  }

  const Serve serve_;
  const UniqueFd listening_;
  int port_ = 0;
  std::atomic<int> connections_{0};
  Thread thread_;
};

std::unique_ptr<HttpTransport> transport_with(CurlOptions options = {}) {
  ::setenv("no_proxy", "*", 1);
  options.connect_seconds = 5;
  options.stall_seconds = 1;
  return make_curl_transport(options).value();
}

HttpRequest request_to(const std::string& origin, HttpMethod method = HttpMethod::get, std::string_view body = {}) {
  HttpRequest request;
  request.method = method;
  request.origin = origin;
  request.path = "/bucket/a/../key";
  request.query = "uploads=";
  request.body = as_bytes(body);
  return request;
}

std::string ok_reply(std::string_view body) {
  return fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nETag: \"e\"\r\nX-Blank:  \t v \r\n\r\n{}", body.size(),
                     body);
}

TEST(CurlTransport, CarriesEveryMethodAsItWasSignedOverOneConnection) {
  Mutex mutex;
  std::vector<std::string> seen;
  RawServer server([&](RawServer& self, int connection) {
    for (std::string text = self.read_request(connection); !text.empty(); text = self.read_request(connection)) {
      const bool is_head = text.starts_with("HEAD");
      {
        const std::lock_guard lock(mutex);
        seen.push_back(std::move(text));
      }
      self.write(connection, is_head ? "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n" : ok_reply("a body"));
    }
  });
  {
    const auto transport = transport_with();
    for (const HttpMethod method :
         {HttpMethod::get, HttpMethod::head, HttpMethod::put, HttpMethod::post, HttpMethod::remove}) {
      const bool has_body = method == HttpMethod::put || method == HttpMethod::post;
      HttpRequest request = request_to(server.origin(), method, has_body ? "sent" : "");
      request.headers = {{"Authorization", "it is me"}, {"x-empty", ""}};
      const HttpReply reply = transport->exchange(request);
      ASSERT_TRUE(reply.failure.ok()) << reply.failure.to_string();
      EXPECT_EQ(reply.times_sent, 1u);
      EXPECT_EQ(reply.status, 200);
      EXPECT_EQ(as_text(reply.body), method == HttpMethod::head ? "" : "a body");
      if (method != HttpMethod::head) {
        EXPECT_EQ(*reply.header("x-blank"), "v");
      }
      EXPECT_EQ(reply.header("x-other"), nullptr);
    }
  }
  EXPECT_EQ(server.connections(), 1);
  const std::lock_guard lock(mutex);
  ASSERT_EQ(seen.size(), 5u);
  for (const std::string& text : seen) {
    EXPECT_NE(text.find(" /bucket/a/../key?uploads= HTTP/1.1\r\n"), std::string::npos);
    EXPECT_NE(text.find("\r\nAuthorization: it is me\r\n"), std::string::npos);
    EXPECT_NE(text.find("\r\nx-empty:\r\n"), std::string::npos);
  }
  EXPECT_TRUE(seen[2].starts_with("PUT ") && seen[2].ends_with("\r\n\r\nsent")) << seen[2];
  EXPECT_TRUE(seen[3].starts_with("POST ") && seen[3].ends_with("\r\n\r\nsent")) << seen[3];
  EXPECT_TRUE(seen[4].starts_with("DELETE ")) << seen[4];
}

TEST(CurlTransport, PutsABodyIntoTheCallersMemoryAndNoMoreThanFits) {
  RawServer server([](RawServer& self, int connection) {
    while (!self.read_request(connection).empty()) self.write(connection, ok_reply("0123456789"));
  });
  const auto transport = transport_with();
  std::string into(10, '?');
  HttpRequest request = request_to(server.origin());
  request.into = std::as_writable_bytes(std::span(into));
  HttpReply reply = transport->exchange(request);
  EXPECT_TRUE(reply.failure.ok());
  EXPECT_EQ(reply.into_bytes, 10u);
  EXPECT_EQ(into, "0123456789");
  request.into = request.into.first(9);
  EXPECT_EQ(transport->exchange(request).failure.code(), StatusCode::resource_limit);
  request.into = {};
  request.body_bytes_max = 9;
  EXPECT_EQ(transport->exchange(request).failure.code(), StatusCode::resource_limit);
}

TEST(CurlTransport, BodiesOfErrorsDoNotGoIntoTheCallersMemory) {
  RawServer server([](RawServer& self, int connection) {
    while (!self.read_request(connection).empty())
      self.write(connection, "HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone");
  });
  std::string into(10, '?');
  HttpRequest request = request_to(server.origin());
  request.into = std::as_writable_bytes(std::span(into));
  const HttpReply reply = transport_with()->exchange(request);
  EXPECT_TRUE(reply.failure.ok());
  EXPECT_EQ(as_text(reply.body), "gone");
  EXPECT_EQ(into, std::string(10, '?'));
}

TEST(CurlTransport, TellsOfRepliesThatAreTornLostLateOrNoReplies) {
  const std::string late = "HTTP/1.1 200 OK\r\n", other_protocol = "SSH-2.0-OpenSSH\r\n";
  for (const std::string& sent :
       {std::string(), std::string("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n01234"), late,
        std::string("HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n"), other_protocol}) {
    SCOPED_TRACE(sent);
    RawServer server([&](RawServer& self, int connection) {
      if (self.read_request(connection).empty()) return;
      self.write(connection, sent);
      if (sent == late) self.read_request(connection);  // until the client gives up
    });
    const HttpReply reply = transport_with()->exchange(request_to(server.origin(), HttpMethod::put, "body"));
    // What speaks another protocol will not learn to speak HTTP.
    EXPECT_EQ(reply.failure.code(), sent == other_protocol ? StatusCode::invalid_argument : StatusCode::io_error);
    EXPECT_EQ(reply.times_sent, 1u);
  }
}

TEST(CurlTransport, RefusesHeadersWithoutEnd) {
  RawServer server([&](RawServer& self, int connection) {
    if (self.read_request(connection).empty()) return;
    std::string text = "HTTP/1.1 200 OK\r\n";
    for (int i = 0; i < 300; ++i) text += "x: y\r\n";
    self.write(connection, text + "\r\n");
  });
  EXPECT_EQ(transport_with()->exchange(request_to(server.origin())).failure.code(), StatusCode::resource_limit);
}

TEST(CurlTransport, KnowsThatNothingWasSentWhereNobodyListens) {
  std::string origin;
  {
    RawServer server([](RawServer&, int) {});
    origin = server.origin();
  }
  HttpReply reply = transport_with()->exchange(request_to(origin, HttpMethod::put, "body"));
  EXPECT_EQ(reply.failure.code(), StatusCode::io_error);
  EXPECT_EQ(reply.times_sent, 0u);
  reply = transport_with()->exchange(request_to("http://no-such-host.invalid"));
  EXPECT_EQ(reply.failure.code(), StatusCode::invalid_argument) << reply.failure.to_string();
}

TEST(CurlTransport, TellsThatARequestWentOutTwiceOverAConnectionThatDied) {
  std::atomic<int> requests{0};
  RawServer server([&](RawServer& self, int connection) {
    // The second request is read, and then the connection is closed without a reply.
    while (!self.read_request(connection).empty()) {
      if (++requests == 2) return;
      self.write(connection, ok_reply(""));
    }
  });
  for (const std::string& body : {std::string("body"), std::string(), std::string(3 << 20, 'x')}) {
    SCOPED_TRACE(body.size());
    requests = 0;
    const auto transport = transport_with();
    EXPECT_EQ(transport->exchange(request_to(server.origin(), HttpMethod::put, "first")).times_sent, 1u);
    const HttpReply reply = transport->exchange(request_to(server.origin(), HttpMethod::put, body));
    ASSERT_TRUE(reply.failure.ok() || reply.failure.code() == StatusCode::io_error);
    if (reply.failure.ok()) {
      EXPECT_EQ(reply.times_sent, 2u);
      EXPECT_EQ(requests, 3);
    } else {
      EXPECT_EQ(reply.times_sent, 1u);
    }
  }
}

TEST(CurlTransport, AConditionalPutThatLibcurlRepeatsIsNotTakenForSomebodyElses) {
  std::string object;
  std::atomic<int> requests{0};
  RawServer server([&](RawServer& self, int connection) {
    for (std::string text = self.read_request(connection); !text.empty(); text = self.read_request(connection)) {
      const bool has_effect = text.starts_with("PUT /bucket/key") && object.empty();
      if (has_effect) object = "contents";
      if (++requests == 2) return;  // with its effect, without a reply
      if (text.starts_with("GET")) {
        self.write(connection, fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nETag: \"e\"\r\n"
                                           "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n{}",
                                           object.size(), object));
      } else {
        self.write(connection, has_effect || text.find("other") != std::string::npos
                                   ? ok_reply("")
                                   : "HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n");
      }
    }
  });
  const auto transport = transport_with();
  S3ClientOptions options;
  options.retries.seconds = 5;
  S3Client client(*transport, {"bucket", ""}, {server.origin(), "us-east-1", true, {}, {"a", "s", {}}}, options);
  ASSERT_TRUE(client.put("other", {}).ok());
  const Result<std::string> etag = client.put("key", as_bytes("contents"), S3Condition::if_absent());
  ASSERT_TRUE(etag.ok()) << etag.status().to_string();
  EXPECT_EQ(client.counters().of(S3Verb::put), 3u);
}

TEST(CurlTransport, SharesItsConnectionsAmongManyThreads) {
  RawServer server([](RawServer& self, int connection) {
    while (!self.read_request(connection).empty()) self.write(connection, ok_reply("x"));
  });
  // The server serves one connection at a time: with two, the second would wait for the end of the first.
  const auto transport = transport_with({.ca_file = {}, .connections_max = 1});
  EXPECT_TRUE(
      parallel_for(50, 8, [&](size_t) { return transport->exchange(request_to(server.origin())).failure; }).ok());
  EXPECT_EQ(server.connections(), 1);
}

TEST(HttpDate, IsReadInItsOneForm) {
  EXPECT_EQ(parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").value(), 784111777);
  EXPECT_EQ(parse_http_date("Thu, 01 Jan 1970 00:00:00 GMT").value(), 0);
  for (const char* bad :
       {"", "Sun, 06 Nov 1994 08:49:37 CET", "Sun, 06 Nov 1994 08:49:37 GMT ", "Sun, 32 Nov 1994 08:49:37 GMT",
        "Sun, 06 ovD 1994 08:49:37 GMT", "Sun, 06 Nov 1994 24:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun, 06 No 1994 08:49:37 GMT", "Sun, -6 Nov 1994 08:49:37 GMT"}) {
    EXPECT_FALSE(parse_http_date(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace varve
