#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "core/sync.h"
#include "serve/chunk_service.h"
#include "serve/connection.h"
#include "serve/gather_service.h"
#include "serve/key_share.h"
#include "serve/polling_threads.h"
#include "serve/request_handler.h"
#include "serve/rights.h"
#include "service/socket.h"
#include "service/tcp_tls.h"

namespace varve {

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
  /// Of clients that have said hello; fewer where this process may not have as many files open.
  size_t connections_max = 16'384;
  size_t threads_max = 256;  ///< that carry requests out; more than strangers_max
  double idle_seconds = 1;   ///< a connection that rests as long ends if another one needs its place
  /// Connections that have not yet: when one more comes, the oldest ends, once it has had a little time.
  size_t strangers_max = 64;
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
  /// How many clients' connections it takes.
  size_t connections_max() const { return options_.connections_max; }
  /// Where it listens.
  const ServerAddress& address() const { return options_.listen; }
  ServedStore& store() { return *store_; }
  /// What it has done since it was started. Thread-safe.
  void tell(Metrics& metrics);

 private:
  enum class Standing : uint8_t { stranger, known, dismissed };
  /// Whose turn it is, if the client's last request waits for its answer.
  enum class Turn : uint8_t { at_work, waits, news };
  static constexpr double kAtWork = -1, kNotBegun = -1;
  class Client final : public Polled {
   public:
    Client(Server& server, UniqueFd socket)
        : Polled(socket.get()), arrived(MonotonicClock::now()), server_(server), socket_(std::move(socket)) {}
    void serve(DataBuffer& buffer) noexcept override { server_.serve(*this, buffer); }
    UniqueFd& own_socket() { return socket_; }

    const Moment arrived;
    std::atomic<Standing> standing{Standing::stranger};
    std::atomic<double> idle_since{kAtWork};     ///< of steady_clock()
    std::atomic<double> begun_since{kNotBegun};  ///< the same: a message that has come in part
    std::atomic<double> news_since{0};           ///< the same: `turn` says news
    std::atomic<Turn> turn{Turn::at_work};
    std::list<Client>::iterator place;
    std::unique_ptr<ByteStream> stream;      ///< until the connection has it
    std::unique_ptr<Connection> connection;  ///< once it is known who comes; of who serves it

   private:
    Server& server_;
    UniqueFd socket_;  ///< until the stream has it
  };
  /// Oldest first. The socket of each is open as long as it is here, and known to `threads_`: its number is nobody
  /// else's.
  struct Clients {
    std::list<Client> strangers, known;
    bool crowded = false;  ///< nobody is let in before a stranger has gone
    Moment next_sign_of_life;
  };

  explicit Server(ServerOptions options) : options_(std::move(options)) {}
  Status begin();
  Status open_place();
  Status listen();
  /// What each key's holders have, once it is known how many keys there are.
  void share_out();
  /// Of the files, what is left beside the connections that are open: where few may be open, a quarter is kept for
  /// connections, where many may, all that they may need.
  void share_files() VARVE_REQUIRES(mutex_);
  /// Leaves some of the files that this process may have open to those that the clients open.
  void fit_to_descriptors();
  void accept_clients();
  /// Ends those that took too long to say hello, for a message, or to take their replies, and lets those that wait for
  /// an answer see that the server lives.
  /// Returns when to look again, and whether another client may come.
  struct Look {
    Moment again;
    bool room = false;
  };
  Look look_after_clients();
  /// Whether the server waits since before `late` for the rest of its request, or for it to take replies.
  static bool is_late(const Client& client, double late);
  void take_in(UniqueFd socket);
  Status begin_client(UniqueFd socket);
  /// Ends the oldest connection that has not said hello, if there are too many.
  void make_room();
  /// Ends the connection that has rested longest, if it has for long enough: its client comes again when it needs to.
  void end_idle();
  /// That a client says hello. busy: there are as many as may be; soon there may be room.
  Status admit(Client& client);
  /// What happens here ends this connection at most.
  void serve(Client& client, DataBuffer& buffer) noexcept;
  Connection::Next serve_once(Client& client, DataBuffer& buffer) noexcept;
  Result<Connection::Next> converse(Client& client, DataBuffer& buffer);
  /// Until when a client must have said hello.
  Deadline hello_by(const Client& client) const;
  /// That the request that waits may have its answer.
  void note_news(Client& client);
  void wait_for_news(Client& client);
  /// Has it looked at whether there is any. While it cannot end.
  void look_for_news(Client& client);
  void end(Client& client) noexcept;
  void shut_down_all(int what);
  /// False: there are connections yet.
  bool wait_for_all_to_end(Deadline deadline);
  /// Logs it, if there is memory for that.
  void tell(const char* what, const Status& why = {}) const noexcept;
  /// A client's connection, and what he may do.
  struct Arrival {
    std::unique_ptr<ByteStream> stream;
    size_t key = 0;
  };
  Result<Arrival> make_stream(UniqueFd&& socket, Deadline deadline) const;
  Status begin_connection(Client& client);
  Status read_keys();
  void wake();

  /// Where the store lies.
  struct ServedPlace {
    std::unique_ptr<Backend> own;  ///< of a folder
    Backend* backend = nullptr;
    std::unique_ptr<ServedFiles> files;
  };

  /// Who shares a key with this server, at TCP.
  struct KeyHolders {
    std::unique_ptr<TlsParty> party;                ///< null: it does not listen at TCP
    std::vector<Rights> rights;                     ///< by key; over a Unix socket, all of one
    std::vector<std::unique_ptr<KeyShare>> shares;  ///< the same
  };

  ServerOptions options_;
  KeyHolders key_holders_;
  ServedPlace place_;
  std::unique_ptr<ChunkService> chunks_;
  std::unique_ptr<NextLevel> next_;
  std::unique_ptr<GatherService> gather_;
  std::unique_ptr<ServedStore> store_;
  UniqueFd listener_;
  UniqueFd wake_;  ///< readable once somebody can be let in, a place is wanted, or it is to stop
  std::unique_ptr<PollingThreads> threads_;
  Thread acceptor_;
  const int64_t started_s_ = calendar_seconds();
  std::atomic<bool> stopping_{false};
  std::atomic<bool> place_wanted_{false};  ///< who came last has found none
  size_t descriptors_ = 0;                 ///< how many files this process may have open
  Mutex mutex_;
  ConditionVariable ended_;
  Clients clients_ VARVE_GUARDED_BY(mutex_);
};

}  // namespace varve
