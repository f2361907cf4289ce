#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "service/address.h"
#include "service/chunk_service.h"
#include "service/connection.h"
#include "service/gather_service.h"
#include "service/next_level.h"
#include "service/store_names.h"
#include "service/tcp_tls.h"

namespace varve {

struct ServerOptions {
  ServerAddress listen;  ///< port 0: any free one, see Server::address()
  std::string folder;    ///< of the store
  std::string key_file;  ///< of TCP
  std::string next;      ///< location of the store that push and pull go to; empty: none
  size_t connections_max = 256;
  uint64_t index_memory_bytes = 64_MiB;  ///< while arenas are indexed
  ConnectionLimits limits;
  GatherLimits gather;
  double stop_seconds = 10;  ///< how long stop() waits for requests at hand before it cuts their connections
  PathRule rule = is_store_path;
  /// Is told what happens, in one line without its end. Called from several threads.
  std::function<void(const std::string&)> log = [](const std::string&) {};
};

/// Serves the folder of a store to clients (PROTOCOL.md). What was acknowledged is in the folder's file system: a
/// server that was killed is simply started again.
class Server {
 public:
  /// Listens when it returns. busy: another server has the folder or the address.
  static Result<std::unique_ptr<Server>> start(ServerOptions options);
  ~Server();  ///< stop()
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Takes no more connections and requests, answers those at hand, and ends all threads.
  void stop();
  /// Where it listens.
  const ServerAddress& address() const { return options_.listen; }
  ServedStore& store() { return *store_; }

 private:
  struct Client {
    std::thread thread;
    UniqueFd control;  ///< the same socket once more, by which the connection can be ended from outside
    std::atomic<bool> ended{false};
  };

  explicit Server(ServerOptions options) : options_(std::move(options)) {}
  Status begin();
  Status listen();
  void accept_clients();
  void admit(UniqueFd socket);
  void turn_away(const UniqueFd& socket);
  void serve(UniqueFd socket);
  Result<std::unique_ptr<ByteStream>> make_stream(UniqueFd socket) const;
  void reap();

  ServerOptions options_;
  std::unique_ptr<ServedFolder> folder_;
  std::unique_ptr<ChunkService> chunks_;
  std::unique_ptr<NextLevel> next_;
  std::unique_ptr<GatherService> gather_;
  std::unique_ptr<ServedStore> store_;
  std::unique_ptr<TlsParty> tls_;  ///< of TCP
  UniqueFd listener_;
  UniqueFd wake_;  ///< readable once it is to stop
  std::thread acceptor_;
  std::atomic<bool> stopping_{false};
  std::list<Client> clients_;  ///< of the acceptor; after it has ended, of stop()
};

}  // namespace varve
