// What a server takes for many connections, of which few are at work: as of the leaders of many groups, each of which
// asks something every few seconds.
//
//   many_connections ADDRESS KEY_FILE|- SERVER_PID CONNECTIONS THREADS SECONDS
//
// Opens the connections, and has each of the threads go round its share of them: one request after another (what lies
// at a path) for so many seconds, then, over each connection, once a file of 1 MiB that is written and removed again.
// Prints JSON: requests a second, seconds, and after each step the server's memory and threads.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/process.h"
#include "service/server_link.h"

namespace varve {
namespace {

[[noreturn]] void give_up(const Status& status) {
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  std::exit(1);
}
template <class T>
T value_of(Result<T> result) {
  if (!result.ok()) give_up(result.status());
  return std::move(result).value();
}
template <class Fields>
Fields done(Result<Reply<Fields>> reply) {
  if (!reply.ok()) give_up(reply.status());
  if (reply->outcome != Outcome::done) give_up(reply->status);
  return std::move(reply->fields);
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

using Connections = std::vector<std::unique_ptr<ServerConnection>>;

class Leaders {
 public:
  Leaders(const std::string& address, const std::string& key_file, size_t count, size_t threads)
      : address_(value_of(ServerAddress::parse(address))), threads_(threads), connections_(count) {
    if (key_file != "-") tls_ = value_of(TlsParty::create(TlsParty::Role::client, {value_of(read_key_file(key_file))}));
  }

  void connect() {
    for_all([this](std::unique_ptr<ServerConnection>& connection) {
      const Deadline deadline = after_seconds(30);
      std::unique_ptr<ByteStream> stream;
      if (tls_) {
        stream = value_of(tls_->shake_hands(value_of(connect_tcp(address_, deadline)), deadline)).stream;
      } else {
        stream = make_socket_stream(value_of(connect_unix(address_.path)));
      }
      connection = value_of(ServerConnection::open(std::move(stream), value_of(UniqueId::random()), {}));
    });
  }

  /// Returns how many requests there were in a second.
  double ask(double seconds) {
    std::vector<size_t> asked(threads_);
    const double begin = now();
    in_threads([&](size_t thread) {
      for (size_t i = thread; now() - begin < seconds; i = i + threads_ < connections_.size() ? i + threads_ : thread) {
        done(connections_[i]->ask(StatRequest{"varve.store"}));
        ++asked[thread];
      }
    });
    size_t all = 0;
    for (const size_t one : asked) all += one;
    return static_cast<double>(all) / (now() - begin);
  }

  void write() {
    const ByteVector data(kWireDataBytesMax, std::byte{7});
    for_all([&](std::unique_ptr<ServerConnection>& connection) {
      const UniqueId token = value_of(UniqueId::random());
      const std::string path = "arenas/" + token.hex() + ".part";
      const OpenedFile file = done(connection->ask(CreateRequest{token, path}));
      done(connection->ask(WriteRequest{file.handle}, {.data = data}));
      done(connection->ask(CloseRequest{file.handle}));
      done(connection->ask(RemoveRequest{value_of(UniqueId::random()), path}));
    });
  }

 private:
  void in_threads(const std::function<void(size_t)>& act) const {
    std::vector<std::thread> threads;
    for (size_t i = 0; i < threads_; ++i) threads.emplace_back(act, i);
    for (std::thread& thread : threads) thread.join();
  }
  void for_all(const std::function<void(std::unique_ptr<ServerConnection>&)>& act) {
    in_threads([&](size_t thread) {
      for (size_t i = thread; i < connections_.size(); i += threads_) act(connections_[i]);
    });
  }

  const ServerAddress address_;
  const size_t threads_;
  std::unique_ptr<TlsParty> tls_;
  Connections connections_;
};

/// What the system says of a process, as fields of a JSON object.
std::string status_of(const std::string& process) {
  std::ifstream status("/proc/" + process + "/status");
  std::string line, fields;
  while (std::getline(status, line)) {
    for (const char* name : {"VmRSS", "VmHWM", "Threads"}) {
      if (line.starts_with(name)) fields += fmt::format(R"(, "{}": {})", name, std::atol(line.c_str() + 8));
    }
  }
  return fields;
}

int run(char** arguments) {
  const std::string process = arguments[3];
  const double seconds = std::atof(arguments[6]);
  raise_descriptor_limit();
  Leaders leaders(arguments[1], arguments[2], std::strtoul(arguments[4], nullptr, 10),
                  std::strtoul(arguments[5], nullptr, 10));
  double begin = now();
  leaders.connect();
  fmt::print("{{\"connect\": {{\"seconds\": {:.2f}", now() - begin);
  fmt::print("{}}},\n", status_of(process));
  fmt::print(" \"ask\": {{\"per_second\": {:.0f}", leaders.ask(seconds));
  fmt::print("{}}},\n", status_of(process));
  begin = now();
  leaders.write();
  fmt::print(" \"write\": {{\"seconds\": {:.2f}", now() - begin);
  fmt::print("{}}}}}\n", status_of(process));
  return 0;
}

}  // namespace
}  // namespace varve

int main(int count, char** arguments) {
  if (count == 7) return varve::run(arguments);
  std::fprintf(stderr, "many_connections ADDRESS KEY_FILE|- SERVER_PID CONNECTIONS THREADS SECONDS\n");
  return 2;
}
