#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "core/sync.h"
#include "serve/chunk_service.h"
#include "serve/gather_service.h"
#include "serve/request_handler.h"
#include "serve/rights.h"
#include "service/socket.h"
#include "service/tcp_tls.h"
#include "service/wire.h"

namespace varve {

struct ConnectionLimits {
  double hello_seconds = 10;  ///< from accepting it until a client must have said who it is
  double frame_seconds = 60;  ///< for the rest of a message that has begun, and for sending an answer
};

/// The server's end of a connection: receives requests, has them carried out, and answers, until the client
/// ends it, or nothing more can be read.
class Connection {
 public:
  /// `admit` as that of RequestHandler; `rests` is told whether the client, who has said hello, has nothing to be done.
  Connection(ServedStore& store, std::unique_ptr<ByteStream> stream, Rights rights, const ConnectionLimits& limits,
             std::function<Status()> admit, std::function<void(bool)> rests)
      : limits_(limits),
        rests_(std::move(rests)),
        wire_(std::move(stream)),
        handler_(store, buffer_, rights, std::move(admit)) {}

  /// Returns why it ended; OK: the client had no more requests, or was turned away.
  Status run(Deadline hello_by);

 private:
  /// For the rest of what is being received or sent.
  Deadline deadline() const { return handler_.greeted() ? after_seconds(limits_.frame_seconds) : hello_by_; }
  /// Lets a client of another version know, after which nothing of what it sends can be understood.
  void refuse_version();
  Status serve_one(const Wire::Head& head);
  Status answer(const WireHeader& to, const RequestHandler::Answer& answer);
  Status send(const WireHeader& to, ByteSpan fields, ByteSpan data = {}, bool more = false, int descriptor = -1);

  const ConnectionLimits limits_;
  const std::function<void(bool)> rests_;
  Wire wire_;
  DataBuffer buffer_;
  RequestHandler handler_;
  Deadline hello_by_;
  Mutex sending_;  ///< signs of life come from threads of a transfer
};

/// The files with the keys of TCP clients, by what who shows a key may do (Rights); empty: nobody may.
struct KeyFiles {
  std::string all, append, read;
};

struct ServedNextLevel {
  std::string location;     ///< of the store that push and pull go to; empty: none
  std::string s3_endpoint;  ///< that has it, if it is in a bucket
};

struct ServerOptions {
  ServerAddress listen;  ///< port 0: any free one, see Server::address()
  std::string folder;    ///< of the store
  /// Has the store instead, and outlives the server. Null: the folder has it.
  Backend* backend = nullptr;
  KeyFiles key_files;                  ///< `all` is also shown to `next`
  Rights socket_rights = Rights::all;  ///< of those who come over a Unix socket
  ServedNextLevel next;
  size_t connections_max = 256;          ///< of clients that have said hello
  double idle_seconds = 1;               ///< a connection that rests as long ends if another one needs its place
  size_t strangers_max = 64;             ///< connections that have not yet: when one more comes, the oldest ends
  uint64_t index_memory_bytes = 64_MiB;  ///< while arenas are indexed
  ConnectionLimits limits;
  GatherLimits gather;
  double stop_seconds = 10;  ///< how long stop() waits for requests at hand before it cuts their connections
  PathRule rule = is_store_path;
  /// Is told what happens, in one line without its end. Called from several threads.
  std::function<void(const std::string&)> log = [](const std::string&) {};
};

/// Serves a store to clients (PROTOCOL.md). What was acknowledged as durable is in the folder's file system, or in the
/// backend: a server that was killed is simply started again.
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
  enum class Standing : uint8_t { stranger, known, dismissed };
  static constexpr double kAtWork = -1;
  struct Client {
    Thread thread;
    UniqueFd control;   ///< the same socket once more, by which the connection can be ended from outside
    Deadline hello_by;  ///< the key is shown, and hello said
    std::atomic<Standing> standing{Standing::stranger};
    std::atomic<double> idle_since{kAtWork};  ///< of steady_clock()
    std::atomic<bool> ended{false};
  };

  explicit Server(ServerOptions options) : options_(std::move(options)) {}
  Status begin();
  Status open_place();
  Status listen();
  void accept_clients();
  void take_in(UniqueFd socket);
  /// Ends the oldest connection that has not said hello, if there are too many.
  void make_room();
  /// Ends the connection that has rested longest, if it has for long enough: its client comes again when it needs to.
  void end_idle();
  /// That a client says hello. busy: there are as many as may be; soon there may be room.
  Status admit(Client& client);
  /// What happens here ends this connection at most.
  void serve(Client& client, UniqueFd socket) noexcept;
  Status converse(Client& client, UniqueFd socket);
  /// Logs it, if there is memory for that.
  void tell(const char* what, const Status& why = {}) const noexcept;
  /// A client's connection, and what he may do.
  struct Arrival {
    std::unique_ptr<ByteStream> stream;
    Rights rights = Rights::read;
  };
  Result<Arrival> make_stream(UniqueFd socket, Deadline deadline) const;
  Status read_keys();
  void reap();
  void wake();

  /// Where the store lies.
  struct ServedPlace {
    std::unique_ptr<Backend> own;  ///< of a folder
    Backend* backend = nullptr;
    std::unique_ptr<ServedFiles> files;
  };

  ServerOptions options_;
  ServedPlace place_;
  std::unique_ptr<ChunkService> chunks_;
  std::unique_ptr<NextLevel> next_;
  std::unique_ptr<GatherService> gather_;
  std::unique_ptr<ServedStore> store_;
  /// Who shares a key with this server, at TCP.
  struct KeyHolders {
    std::unique_ptr<TlsParty> party;  ///< null: it does not listen at TCP
    std::vector<Rights> rights;       ///< by key
  };
  KeyHolders key_holders_;
  UniqueFd listener_;
  UniqueFd wake_;  ///< readable once a connection has ended, or it is to stop
  Thread acceptor_;
  std::atomic<bool> stopping_{false};
  std::atomic<size_t> known_count_{0};
  std::atomic<bool> place_wanted_{false};  ///< who came last has found none
  std::list<Client> clients_;              ///< oldest first; of the acceptor; after it has ended, of stop()
};

}  // namespace varve
