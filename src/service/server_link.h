#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/sync.h"
#include "core/unique_id.h"
#include "service/protocol.h"
#include "service/socket.h"
#include "service/tcp_tls.h"
#include "service/wire.h"
#include "varve/status.h"

namespace varve {

/// In which folders of a server a client has changed names, and in which run of the server's machine: a machine that
/// has lost power may have lost names that were not synced, and a sync would then make durable what is left, and say
/// nothing. Also who watches for that (FileSystem::watch_power). Bounded. One thread at a time.
class NameChanges {
 public:
  /// A name in `folder` was changed in `run`. As long as somebody watches that run, it is his concern.
  void note(const std::string& folder, const UniqueId& run);
  /// io_error: a sync of `folder` in `run` would prove nothing to a watcher, or of names that were changed before. This
  /// is said once of each folder, and as long as there are watchers of another run.
  Status check_sync(const std::string& folder, const UniqueId& run);
  /// How many changes there have been.
  uint64_t count() const { return count_; }
  /// `folder` was synced after so many changes, and after check_sync().
  void forget_synced(const std::string& folder, uint64_t count);

  void begin_watch(const UniqueId& run) { ++watchers_[run]; }
  void end_watch(const UniqueId& run);

 private:
  struct Change {
    UniqueId first_run;
    uint64_t last = 0;  ///< its number
  };
  bool someone_watches_another(const UniqueId& run) const;

  uint64_t count_ = 0;
  std::map<UniqueId, size_t> watchers_;
  std::map<std::string, Change> unsynced_;
  /// Since there were too many folders: the run in which nobody knows what was changed. Never forgotten.
  std::optional<UniqueId> lost_count_;
};

struct LinkOptions {
  std::string key_file;           ///< of TCP
  double connect_seconds = 10;    ///< for connecting and saying hello
  double room_seconds = 60;       ///< for trying again if the server has no room: others' connections may rest soon
  double answer_seconds = 60;     ///< without a sign of life from the server while a request waits
  double sync_seconds = 120;      ///< the same, of what waits for a disk
  double reconnect_seconds = 30;  ///< for which what can be repeated is repeated
  bool take_descriptors = true;   ///< of files, over Unix sockets: what they hold need not pass through the socket
  size_t connections_max = 16;    ///< of requests, if the server takes as many; files that are written have their own
};

/// What goes with a request beside its fields.
struct AskOptions {
  bool again = false;         ///< it may have reached the server before; a ServerLink knows that by itself
  ByteSpan data = {};         ///< of the request
  MutableByteSpan into = {};  ///< for the data of the reply, which must fit
};

/// A connection that has said hello. One request at a time; of no more use after a failure.
class ServerConnection {
 public:
  using Open = std::function<Result<std::unique_ptr<ByteStream>>(Deadline)>;
  static Result<std::unique_ptr<ServerConnection>> open(std::unique_ptr<ByteStream> stream, const UniqueId& client,
                                                        const LinkOptions& options);

  /// Sends a request, and waits for its answer: what failed here is the connection; what the server says is in the
  /// reply.
  template <class Message>
  Result<ReplyTo<Message>> ask(const Message& message, const AskOptions& options = {}) {
    VARVE_TRY(send(message, options));
    size_t data_bytes = 0;
    VARVE_ASSIGN(ReplyTo<Message> reply, receive<Message>(options.into, data_bytes));
    if (reply.outcome == Outcome::done) VARVE_TRY(check_data(message, reply.fields, data_bytes));
    return reply;
  }
  /// The entries come in as many frames as it takes.
  Result<Reply<FolderEntries>> ask(const ListRequest& message, const AskOptions& options = {});

  /// Whether the server is still there.
  Status ping();
  /// While an answer takes long, this is asked now and then: if it says so, ask() ends with cancelled.
  void give_up_if(std::function<bool()> is_to_end) { is_to_end_ = std::move(is_to_end); }

  /// The two halves of ask(), of requests that are sent one after another; answers come in the same order.
  template <class Message>
  Status send(const Message& message, const AskOptions& options = {}) {
    return send_fields(Message::kMessage, encode_fields(message), options);
  }
  /// Returns the answer, and in `data_bytes` how many of the bytes of `into` it has filled.
  template <class Message>
  Result<ReplyTo<Message>> receive(MutableByteSpan into, size_t& data_bytes) {
    std::shared_ptr<UniqueFd> descriptor;
    VARVE_ASSIGN(const ByteSpan fields, receive_fields(Message::kMessage, into, data_bytes, descriptor));
    VARVE_ASSIGN(ReplyTo<Message> reply, decode_fields<ReplyTo<Message>>(fields));
    if constexpr (requires { reply.fields.descriptor; }) reply.fields.descriptor = std::move(descriptor);
    return reply;
  }

  const UniqueId& server() const { return server_; }
  const UniqueId& boot() const { return boot_; }
  /// The run of the machine; of the server, if that is not known: then each may be in another one.
  const UniqueId& machine_run() const { return boot_ == UniqueId{} ? server_ : boot_; }
  /// How many connections the server takes in all.
  uint64_t connections() const { return connections_; }

 private:
  ServerConnection(std::unique_ptr<ByteStream> stream, const LinkOptions& options)
      : options_(options), wire_(std::move(stream)) {}
  Status send_fields(const MessageFacts& message, ByteSpan fields, const AskOptions& options);
  Result<Wire::Head> receive_head(const MessageFacts& message);
  /// All of a reply; its fields are there until the next one comes.
  Result<ByteSpan> receive_fields(const MessageFacts& message, MutableByteSpan into, size_t& data_bytes,
                                  std::shared_ptr<UniqueFd>& descriptor);
  /// corrupt: the data that came are not those of which the fields speak.
  template <class Message>
  static Status check_data(const Message&, const typename Message::ReplyFields&, size_t) {
    return {};
  }
  static Status check_data(const ReadRequest& request, const ReadRequest::ReplyFields& reply, size_t data_bytes);
  static Status check_data(const FindRequest& request, const FindRequest::ReplyFields& reply, size_t data_bytes);
  double patience(const MessageFacts& message) const;

  const LinkOptions options_;
  Wire wire_;
  UniqueId server_, boot_;
  uint64_t connections_ = 0;
  uint64_t sent_ = 0, answered_ = 0;  ///< number of the last one
  std::function<bool()> is_to_end_;
};

/// What a server serves, which its address does not say.
struct ServedPlace {
  UniqueId store;         ///< StoreHeader::store
  uint32_t position = 0;  ///< of the place, where the store has several
  bool operator==(const ServedPlace&) const = default;
};

/// Tries again for a bounded time, ever more slowly.
class Retries {
 public:
  explicit Retries(double seconds);
  /// Waits, and says whether to try again after `failure`: only a connection that was lost is worth it.
  bool goes_on(const Status& failure);

 private:
  const Deadline deadline_;
  double pause_seconds_ = 0;
};

/// The way to one server: connections to it, made when they are needed and kept. Repeats what may be repeated when the
/// connection is lost, for a bounded time (PROTOCOL.md, "What is repeated"). Thread-safe.
class ServerLink {
 public:
  /// Connects and says hello, so that a server that is not there is noticed at once. busy: it has no room, also after a
  /// while.
  static Result<std::unique_ptr<ServerLink>> open(ServerAddress address, LinkOptions options);

  /// Carries a request out, whose token is chosen here if it has one. What the server says is in the reply; a
  /// Status: it could not be reached, or makes no sense.
  template <class Message>
  Result<ReplyTo<Message>> ask(Message message, AskOptions options = {}) {
    if constexpr (kHasToken<Message>) {
      VARVE_ASSIGN(message.token, UniqueId::random());
    }
    ReplyTo<Message> reply;
    VARVE_TRY(with_connection([&](ServerConnection& connection, bool again) -> Status {
      options.again = again;
      VARVE_ASSIGN(reply, connection.ask(message, options));
      // Whatever has become of an earlier try: this is the run in which the name was changed, or found to be.
      if (reply.outcome == Outcome::done) note_changes(message, connection.machine_run());
      return {};
    }));
    return reply;
  }

  /// Notes what a request that was carried out in `run` has changed.
  template <class Message>
  void note_changes(const Message& message, const UniqueId& run) {
    if constexpr (requires { message.to; }) {
      note_names({message.path, message.to}, run);
    } else if constexpr (Message::kMessage.changes_names) {
      note_names({message.path}, run);
    }
  }
  /// Calls `use` with the changes that were noted. ask() notes those that it makes.
  template <class Use>
  auto with_changes(const Use& use) {
    const MutexLock lock(changes_mutex_);
    return use(changes_);
  }

  /// Calls `act` with a connection, and again with another one as long as that fails for want of a connection; `again`
  /// tells it that it is not the first time.
  Status with_connection(const std::function<Status(ServerConnection&, bool again)>& act);

  /// A connection for one's own use; give_back() it, unless it failed.
  Result<std::unique_ptr<ServerConnection>> take_own();
  /// The same, but null if none is idle.
  std::unique_ptr<ServerConnection> take_idle();
  void give_back(std::unique_ptr<ServerConnection> connection);

  /// Calls `act` until it does not fail for want of a connection any more, for a bounded time: once the server was not
  /// reached for all that time, the next operations do not wait as long again, until it is back. `failure` is that of a
  /// try before, if there was one.
  Status repeat(const std::function<Status()>& act, Status failure = {});
  std::string name() const { return address_.to_string(); }
  /// The run of the server that open() has met: equal, if two addresses lead to the same.
  const UniqueId& server() const { return server_; }
  /// From now on a server that was started anew is used only if it serves the same: its disk may not be mounted, and a
  /// new store have been made in its place. Else it is as if it were not there.
  void expect(const ServedPlace& place);

 private:
  ServerLink(ServerAddress address, LinkOptions options) : address_(std::move(address)), options_(std::move(options)) {
    idle_.reserve(options_.connections_max);  // none gets lost when it is given back
  }
  Status prepare_tls();
  void note_names(std::initializer_list<std::string_view> paths, const UniqueId& run);
  /// Says that the server cannot be reached, because of `failure`.
  Status unreachable(const Status& failure);
  /// busy: the server closed the connection before it had answered hello, or said that it has no room.
  Result<std::unique_ptr<ServerConnection>> connect() const;
  Result<std::unique_ptr<ServerConnection>> greet(UniqueFd socket, Deadline deadline) const;
  Status check_served(ServerConnection& connection) const;
  Result<std::unique_ptr<ServerConnection>> take();
  void drop(std::unique_ptr<ServerConnection> connection);
  Result<std::unique_ptr<ByteStream>> make_stream(UniqueFd socket, Deadline deadline) const;

  const ServerAddress address_;
  const LinkOptions options_;
  UniqueId client_, server_;
  std::unique_ptr<TlsParty> tls_;  ///< of TCP

  mutable std::atomic<bool> was_unreachable_{false};
  mutable std::atomic<size_t> connections_max_{1};  ///< of requests, as the server said last
  Mutex changes_mutex_;                             ///< no other lock is taken with it
  NameChanges changes_ VARVE_GUARDED_BY(changes_mutex_);
  mutable Mutex served_mutex_;  ///< no other lock is taken with it
  std::optional<ServedPlace> expected_ VARVE_GUARDED_BY(served_mutex_);
  mutable UniqueId known_run_ VARVE_GUARDED_BY(served_mutex_);  ///< of the server: it serves what is expected
  Mutex mutex_;
  ConditionVariable returned_;
  std::vector<std::unique_ptr<ServerConnection>> idle_ VARVE_GUARDED_BY(mutex_);
  size_t lent_ VARVE_GUARDED_BY(mutex_) = 0;  ///< connections that requests have
};

}  // namespace varve
