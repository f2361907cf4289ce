#include "service/server_link.h"

#include <algorithm>

#include "core/guarded.h"
#include "core/sync.h"
#include "format/store_folder.h"
#include "format/store_header.h"
#include "service/socket.h"

namespace varve {

namespace {
/// Far more than a store has, but for the folders of jobs, which who saves into them watches.
constexpr size_t kFoldersMax = 4096;

Status may_be_lost(const std::string& folder) {
  return Status::io_error("the server's machine was restarted: names that were changed before may be lost", folder,
                          "do again what was being done");
}
}  // namespace

void NameChanges::note(const std::string& folder, const UniqueId& run) {
  ++count_;
  if (watchers_.contains(run)) return;
  const auto found = unsynced_.find(folder);
  if (found != unsynced_.end()) {
    found->second.last = count_;
  } else if (unsynced_.size() < kFoldersMax) {
    unsynced_.emplace(folder, Change{run, count_});
  } else if (!lost_count_) {
    lost_count_ = run;
  }
}

bool NameChanges::someone_watches_another(const UniqueId& run) const {
  return std::any_of(watchers_.begin(), watchers_.end(), [&](const auto& watched) { return watched.first != run; });
}

Status NameChanges::check_sync(const std::string& folder, const UniqueId& run) {
  if (someone_watches_another(run) || (lost_count_ && *lost_count_ != run)) return may_be_lost(folder);
  const auto changed = unsynced_.find(folder);
  if (changed == unsynced_.end() || changed->second.first_run == run) return {};
  unsynced_.erase(changed);
  return may_be_lost(folder);
}

void NameChanges::forget_synced(const std::string& folder, uint64_t count) {
  const auto changed = unsynced_.find(folder);
  if (changed != unsynced_.end() && changed->second.last <= count) unsynced_.erase(changed);
}

void NameChanges::end_watch(const UniqueId& run) {
  const auto watched = watchers_.find(run);
  if (--watched->second == 0) watchers_.erase(watched);
}

namespace {
constexpr double kFirstPauseSeconds = 0.01;
constexpr double kPauseSecondsMax = 1;

/// The folder in which a path that is served has its name.
std::string folder_of(std::string_view path) {
  const size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? "" : path.substr(0, slash));
}

/// What another try may mend: the connection was lost, or the server had no room.
bool may_pass(const Status& failure) {
  return failure.code() == StatusCode::io_error || failure.code() == StatusCode::busy;
}
}  // namespace

Result<std::unique_ptr<ServerConnection>> ServerConnection::open(std::unique_ptr<ByteStream> stream,
                                                                 const UniqueId& client, const LinkOptions& options) {
  std::unique_ptr<ServerConnection> connection(new ServerConnection(std::move(stream), options));
  VARVE_ASSIGN(const Reply<ServerFacts> reply, connection->ask(HelloRequest{client}));
  if (reply.outcome == Outcome::failed) return reply.status;
  if (reply.outcome != Outcome::done) return Status::corrupt("the server did not understand a greeting");
  connection->server_ = reply.fields.server;
  connection->boot_ = reply.fields.boot;
  connection->connections_ = reply.fields.connections;
  return connection;
}

double ServerConnection::patience(const MessageFacts& message) const {
  if (message.number == HelloRequest::kMessage.number) return options_.connect_seconds;
  return message.waits_for_disk ? options_.sync_seconds : options_.answer_seconds;
}

Status ServerConnection::send_fields(const MessageFacts& message, ByteSpan fields, const AskOptions& options) {
  WireHeader header;
  header.message = message.number;
  header.request = ++sent_;
  header.flags = options.again ? WireHeader::kAgain : 0;
  return wire_.send(header, fields, options.data, after_seconds(patience(message)));
}

Result<Wire::Head> ServerConnection::receive_head(const MessageFacts& message) {
  VARVE_ASSIGN(Wire::Head head, wire_.receive_head(after_seconds(patience(message))));
  if (head.closed) return Status::io_error("the server closed the connection");
  const WireHeader& header = head.header;
  if (!header.has(WireHeader::kReply) || header.request != answered_ + 1 || header.message != message.number)
    return Status::corrupt("the server answered what was not asked");
  return head;
}

Result<ByteSpan> ServerConnection::receive_fields(const MessageFacts& message, MutableByteSpan into, size_t& data_bytes,
                                                  std::shared_ptr<UniqueFd>& descriptor) {
  while (true) {
    VARVE_ASSIGN(const Wire::Head head, receive_head(message));
    const bool more = head.header.has(WireHeader::kMore);
    if (more && head.header.data_bytes == 0 && message.takes_long) {  // a sign of life
      if (is_to_end_ && is_to_end_()) return Status::cancelled();
      continue;
    }
    if (more || head.header.data_bytes > into.size()) return Status::corrupt("the server sent more than was asked for");
    ++answered_;
    if (head.header.has(WireHeader::kDescriptor)) descriptor = std::make_shared<UniqueFd>(wire_.take_descriptor());
    data_bytes = head.header.data_bytes;
    if (data_bytes > 0)
      VARVE_TRY(wire_.receive_data(head.header, into.first(data_bytes), after_seconds(patience(message))));
    return head.fields;
  }
}

Status ServerConnection::check_data(const ReadRequest& request, const ReadRequest::ReplyFields& reply,
                                    size_t data_bytes) {
  uint64_t sum = 0;
  for (size_t i = 0; i < reply.counts.size(); ++i) {
    if (i >= request.ranges.size() || reply.counts[i] > request.ranges[i].bytes)
      return Status::corrupt("the server sent more than was asked for");
    sum += reply.counts[i];
  }
  const bool fits = reply.counts.size() == request.ranges.size() && sum == data_bytes;
  return fits ? Status() : Status::corrupt("the server sent other bytes than it says");
}

Status ServerConnection::check_data(const FindRequest& request, const FindRequest::ReplyFields& reply,
                                    size_t data_bytes) {
  uint64_t sum = 0;
  for (const uint64_t count : reply.counts) {
    if (count > kFindCandidatesMax) return Status::corrupt("the server knows a chunk in too many places");
    sum += count;
  }
  const bool fits = reply.counts.size() == request.prefix_count && sum * kCandidateBytes == data_bytes;
  return fits ? Status() : Status::corrupt("the server answered other questions than were asked");
}

Status ServerConnection::ping() { return ask(PingRequest()).status(); }

Result<Reply<FolderEntries>> ServerConnection::ask(const ListRequest& message, const AskOptions& options) {
  constexpr size_t entries_max = 4'000'000;
  VARVE_TRY(send(message, options));
  std::vector<DirectoryEntry> entries;
  while (true) {
    VARVE_ASSIGN(const Wire::Head head, receive_head(message.kMessage));
    const bool more = head.header.has(WireHeader::kMore);
    VARVE_ASSIGN(Reply<FolderEntries> reply, decode_fields<Reply<FolderEntries>>(head.fields));
    ByteVector data(head.header.data_bytes);
    if (!data.empty()) VARVE_TRY(wire_.receive_data(head.header, data, after_seconds(patience(message.kMessage))));
    VARVE_TRY(decode_entries(data, entries));
    if (entries.size() > entries_max) return Status::corrupt("the server lists more files than there can be");
    if (more && data.empty()) return Status::corrupt("the server's list has no end");
    if (more) continue;
    ++answered_;
    reply.fields.entries = std::move(entries);
    return reply;
  }
}

Retries::Retries(double seconds) : deadline_(after_seconds(seconds)) {}

bool Retries::goes_on(const Status& failure) {
  if (!may_pass(failure) || MonotonicClock::now() >= deadline_) return false;
  // The first time at once: often only an old connection was dead.
  sleep_for(std::chrono::duration<double>(pause_seconds_));
  pause_seconds_ = pause_seconds_ == 0 ? kFirstPauseSeconds : std::min(2 * pause_seconds_, kPauseSecondsMax);
  return true;
}

Result<std::unique_ptr<ServerLink>> ServerLink::open(ServerAddress address, LinkOptions options) {
  std::unique_ptr<ServerLink> link(new ServerLink(std::move(address), std::move(options)));
  VARVE_ASSIGN(link->client_, UniqueId::random());
  if (link->address_.kind == ServerAddress::Kind::tcp) VARVE_TRY(link->prepare_tls());
  // A server that is there, but has no room just now, may have some soon.
  Retries retries(link->options_.room_seconds);
  Result<std::unique_ptr<ServerConnection>> connection = link->connect();
  while (!connection.ok() && connection.status().code() == StatusCode::busy && retries.goes_on(connection.status()))
    connection = link->connect();
  if (!connection.ok()) {
    return may_pass(connection.status()) ? link->unreachable(connection.status())
                                         : connection.status().with_context("cannot use the server " + link->name());
  }
  link->server_ = (*connection)->server();
  link->give_back(std::move(*connection));
  return link;
}

Status ServerLink::prepare_tls() {
  if (options_.key_file.empty()) {
    return Status::invalid_argument("a server over TCP needs the key that it shares with its clients", name(),
                                    Remedy::name_key_file);
  }
  VARVE_ASSIGN(const SharedKey key, read_key_file(options_.key_file));
  VARVE_ASSIGN(tls_, TlsParty::create(TlsParty::Role::client, {key}));
  return {};
}

Status ServerLink::unreachable(const Status& failure) {
  was_unreachable_ = true;
  const bool full = failure.code() == StatusCode::busy;
  return Status(full ? StatusCode::busy : StatusCode::io_error,
                "the server " + name() + " does not answer: " + failure.to_string(), "",
                full ? Hint(Remedy::try_again_or_allow_connections) : "start it, or check what has become of it");
}

Result<std::unique_ptr<ByteStream>> ServerLink::make_stream(UniqueFd socket, Deadline deadline) const {
  if (tls_) {
    VARVE_ASSIGN(SecureStream secure, tls_->shake_hands(std::move(socket), deadline));
    return std::move(secure.stream);
  }
  return make_socket_stream(std::move(socket), options_.take_descriptors ? Descriptors::taken : Descriptors::refused);
}

Result<std::unique_ptr<ServerConnection>> ServerLink::connect() const {
  const Deadline deadline = after_seconds(options_.connect_seconds);
  VARVE_ASSIGN(UniqueFd socket, tls_ ? connect_tcp(address_, deadline) : connect_unix(address_.path));
  Result<std::unique_ptr<ServerConnection>> connection = greet(std::move(socket), deadline);
  if (!connection.ok()) {
    // There is a server, which has closed before its time: others have come meanwhile, or it is being ended.
    const bool was_closed = connection.status().code() == StatusCode::io_error && MonotonicClock::now() < deadline;
    return was_closed ? Status::busy("it closed the connection before hello was answered") : connection.status();
  }
  VARVE_TRY(check_served(**connection));
  was_unreachable_ = false;
  connections_max_ = std::clamp<uint64_t>((*connection)->connections(), 1, options_.connections_max);
  return connection;
}

Result<std::unique_ptr<ServerConnection>> ServerLink::greet(UniqueFd socket, Deadline deadline) const {
  VARVE_ASSIGN(std::unique_ptr<ByteStream> stream, make_stream(std::move(socket), deadline));
  return ServerConnection::open(std::move(stream), client_, options_);
}

void ServerLink::expect(const ServedPlace& place) {
  const MutexLock lock(served_mutex_);
  expected_ = place;
  known_run_ = {};
}

namespace {
/// Of the files that say what is served.
constexpr uint64_t kSmallBytesMax = 4096;

/// not_found: there is none.
Result<ByteVector> read_served(ServerConnection& connection, std::string_view path) {
  VARVE_ASSIGN(const Reply<OpenedFile> opened, connection.ask(OpenRequest{std::string(path)}));
  if (opened.outcome == Outcome::failed) return opened.status;
  if (opened.outcome != Outcome::done || opened.fields.bytes > kSmallBytesMax)
    return Status::corrupt("the server has no such file as a store has", std::string(path));
  ByteVector bytes(opened.fields.bytes);
  const ReadRequest read{opened.fields.handle, {{0, bytes.size()}}};
  VARVE_ASSIGN(const ReplyTo<ReadRequest> reply, connection.ask(read, {.into = bytes}));
  VARVE_TRY(connection.ask(CloseRequest{opened.fields.handle}).status());
  if (reply.outcome == Outcome::failed) return reply.status;
  if (reply.outcome != Outcome::done || reply.fields.counts != std::vector<uint64_t>{bytes.size()})
    return Status::corrupt("the server did not read the whole file", std::string(path));
  return bytes;
}

Result<ServedPlace> served_place(ServerConnection& connection) {
  VARVE_ASSIGN(const ByteVector raw, read_served(connection, "varve.store"));
  VARVE_ASSIGN(const StoreHeader header, decode_store_header(raw, "varve.store"));
  ServedPlace place{header.store};
  const Result<ByteVector> member = read_served(connection, kSpreadMemberName);
  if (member.status().code() == StatusCode::not_found) return place;
  VARVE_TRY(member.status());
  VARVE_ASSIGN(const SpreadMember decoded, decode_spread_member(as_text(*member)));
  place.position = decoded.position;
  return place;
}
}  // namespace

Status ServerLink::check_served(ServerConnection& connection) const {
  ServedPlace expected;
  {
    const MutexLock lock(served_mutex_);
    if (!expected_ || known_run_ == connection.server()) return {};
    expected = *expected_;
  }
  const Result<ServedPlace> served = served_place(connection);
  const bool is_other = served.ok() ? *served != expected : served.status().code() != StatusCode::io_error;
  if (is_other) {
    return Status::io_error("it was started anew, and does not serve the store any more that it served", name(),
                            "see whether its disk is mounted");
  }
  VARVE_TRY(served.status());
  const MutexLock lock(served_mutex_);
  if (expected_ == expected) known_run_ = connection.server();
  return {};
}

Result<std::unique_ptr<ServerConnection>> ServerLink::take() {
  {
    const MutexLock lock(mutex_);
    while (idle_.empty() && lent_ >= connections_max_) returned_.wait(mutex_);
    ++lent_;
    if (!idle_.empty()) {
      std::unique_ptr<ServerConnection> connection = std::move(idle_.back());
      idle_.pop_back();
      return connection;
    }
  }
  Result<std::unique_ptr<ServerConnection>> connection = run_guarded([this] { return connect(); });
  if (!connection.ok()) drop(nullptr);
  return connection;
}

void ServerLink::drop(std::unique_ptr<ServerConnection> connection) {
  std::vector<std::unique_ptr<ServerConnection>> closed;
  {
    const MutexLock lock(mutex_);
    --lent_;
    // If one is dead, the others are, too, most likely.
    if (connection) closed.swap(idle_);
  }
  returned_.notify_one();
}

std::unique_ptr<ServerConnection> ServerLink::take_idle() {
  const MutexLock lock(mutex_);
  if (idle_.empty()) return nullptr;
  std::unique_ptr<ServerConnection> connection = std::move(idle_.back());
  idle_.pop_back();
  return connection;
}

Result<std::unique_ptr<ServerConnection>> ServerLink::take_own() {
  if (std::unique_ptr<ServerConnection> idle = take_idle()) return idle;
  return connect();
}

void ServerLink::give_back(std::unique_ptr<ServerConnection> connection) {
  {
    const MutexLock lock(mutex_);
    if (idle_.size() < connections_max_) idle_.push_back(std::move(connection));
  }
  returned_.notify_one();
}

Status ServerLink::repeat(const std::function<Status()>& act, Status failure) {
  Retries retries(was_unreachable_ ? 0 : options_.reconnect_seconds);
  while (failure.ok() || retries.goes_on(failure)) {
    failure = act();
    if (failure.ok()) return {};
  }
  return may_pass(failure) ? unreachable(failure) : failure;
}

Status ServerLink::with_connection(const std::function<Status(ServerConnection&, bool again)>& act) {
  bool again = false;
  return repeat([&]() -> Status {
    VARVE_ASSIGN(std::unique_ptr<ServerConnection> connection, take());
    // Also where there is no memory for it: a connection that is lent for ever would be one less.
    const Status acted = run_guarded([&] { return act(*connection, again); });
    if (!acted.ok()) {
      again = true;
      drop(std::move(connection));
      return acted;
    }
    {
      const MutexLock lock(mutex_);
      --lent_;
    }
    give_back(std::move(connection));
    return {};
  });
}

void ServerLink::note_names(std::initializer_list<std::string_view> paths, const UniqueId& run) {
  with_changes([&](NameChanges& changes) {
    for (const std::string_view path : paths) changes.note(folder_of(path), run);
  });
}

}  // namespace varve
