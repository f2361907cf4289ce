#include "serve/server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "backend/folder_backend.h"
#include "core/clock.h"
#include "core/guarded.h"
#include "core/sync.h"
#include "serve/served_backend.h"
#include "service/location.h"
#include "service/socket.h"

namespace varve {

Status Connection::run(Deadline hello_by) {
  hello_by_ = hello_by;
  while (true) {
    if (handler_.greeted()) {
      rests_(true);
      wire_.wait();
      rests_(false);
    }
    const Result<Wire::Head> received = wire_.receive_head(deadline());
    if (received.status().code() == StatusCode::unsupported) refuse_version();
    VARVE_ASSIGN(const Wire::Head head, received);
    if (head.closed) return {};
    VARVE_TRY(serve_one(head));
    if (head.header.message == GoodbyeRequest::kMessage.number) return {};
    if (head.header.message == HelloRequest::kMessage.number && !handler_.greeted()) return {};  // turned away
  }
}

void Connection::refuse_version() {
  WireHeader hello;
  hello.message = HelloRequest::kMessage.number;
  hello.request = 1;
  const Reply<ServerFacts> reply =
      Status::unsupported(fmt::format("the server speaks version {} of the protocol", kWireVersion), "",
                          "use the same Varve on both sides");
  send(hello, encode_fields(reply)).ignore("the connection ends in any case");
}

Status Connection::serve_one(const Wire::Head& head) {
  const WireHeader& header = head.header;
  // Before hello is answered, nobody may have memory filled.
  if (header.data_bytes > 0 && !handler_.greeted()) return Status::corrupt("a connection begins with data");
  MutableByteSpan data;
  if (header.data_bytes > 0) {
    std::byte* const into = buffer_.get(header.data_bytes);
    if (into == nullptr) return Status::resource_limit("no memory for a message");
    data = {into, header.data_bytes};
    VARVE_TRY(wire_.receive_data(header, data, deadline()));
  }
  const Result<Request> request = decode_request(header, head.fields);
  if (request.status().code() == StatusCode::unsupported)
    return send(header, encode_fields(Reply<NoFields>(request.status())));
  VARVE_TRY(request.status());
  auto alive = [&] { return send(header, encode_fields(Reply<NoFields>()), {}, true).ok(); };
  return answer(header, handler_.handle(*request, data, alive));
}

Status Connection::answer(const WireHeader& to, const RequestHandler::Answer& answer) {
  constexpr size_t entry_bytes_max = 300;
  ByteVector entries;
  for (const DirectoryEntry& entry : answer.entries) {
    if (entries.size() + entry_bytes_max > kWireDataBytesMax) {
      VARVE_TRY(send(to, answer.fields, entries, true));
      entries.clear();
    }
    append_entry(entries, entry);
  }
  return send(to, answer.fields, entries.empty() ? answer.data : entries, false,
              answer.file ? answer.file->descriptor() : -1);
}

Status Connection::send(const WireHeader& to, ByteSpan fields, ByteSpan data, bool more, int descriptor) {
  WireHeader header;
  header.message = to.message;
  header.request = to.request;
  header.flags = static_cast<uint8_t>(WireHeader::kReply | (more ? WireHeader::kMore : 0));
  const MutexLock lock(sending_);
  return wire_.send_with(descriptor, header, fields, data, deadline());
}

namespace {
/// This run of the machine; zero if that cannot be told.
UniqueId boot_id() {
  Result<std::unique_ptr<File>> file = posix_file_system().open_read("/proc/sys/kernel/random/boot_id");
  if (!file.ok()) return {};
  ByteVector raw(64);
  const Result<size_t> got = (*file)->read_at(0, raw);
  if (!got.ok()) return {};
  std::string digits;
  for (const char c : as_text(ByteSpan(raw).first(*got))) {
    if (c != '-' && c != '\n') digits.push_back(c);
  }
  const Result<UniqueId> id = UniqueId::parse(digits);
  return id.ok() ? *id : UniqueId{};
}
}  // namespace

Result<std::unique_ptr<Server>> Server::start(ServerOptions options) {
  std::unique_ptr<Server> server(new Server(std::move(options)));
  VARVE_TRY(server->begin());
  return server;
}

Server::~Server() { stop(); }

Status Server::begin() {
  VARVE_TRY(open_place());
  const std::string folder = place_.own ? options_.folder : std::string();
  chunks_ = std::make_unique<ChunkService>(*place_.backend, folder, options_.index_memory_bytes);
  store_ = std::make_unique<ServedStore>(*place_.files);
  store_->chunks = chunks_.get();
  store_->committed = [this] { chunks_->keep_up(); };
  if (!options_.next.location.empty()) {
    VARVE_TRY(Location::parse(options_.next.location).status());
    next_ = std::make_unique<NextLevel>(*place_.backend, options_.next.location,
                                        ReachOptions{options_.key_files.all, options_.next.s3_endpoint});
    store_->transfer = [this](TransferDirection direction, const SetTransfer& what, const SignOfLife& alive) {
      return next_->transfer(direction, what, alive);
    };
  }
  gather_ = std::make_unique<GatherService>(*place_.backend, options_.gather, options_.log);
  store_->gather = gather_.get();
  store_->connections_max = options_.connections_max;
  VARVE_ASSIGN(store_->server, UniqueId::random());
  store_->boot = boot_id();
  wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.valid()) return Status::from_errno(errno, "make an event", "");
  VARVE_TRY(listen());
  VARVE_ASSIGN(acceptor_, start_thread([this] { accept_clients(); }));
  return {};
}

Status Server::open_place() {
  if (options_.backend != nullptr) {
    place_.backend = options_.backend;
    place_.files = std::make_unique<ServedBackend>(*place_.backend);
    return {};
  }
  VARVE_ASSIGN(place_.files, ServedFolder::open(options_.folder, options_.rule));
  place_.own = std::make_unique<FolderBackend>(posix_file_system(), options_.folder);
  place_.backend = place_.own.get();
  return {};
}

Status Server::listen() {
  if (options_.listen.kind == ServerAddress::Kind::unix_socket) {
    VARVE_ASSIGN(listener_, listen_unix(options_.listen.path));
    return {};
  }
  VARVE_TRY(read_keys());
  VARVE_ASSIGN(listener_, listen_tcp(options_.listen));
  return {};
}

Status Server::read_keys() {
  std::vector<SharedKey> keys;
  // The most rights first: a client that does not say which key it has is one of before there were several.
  for (const auto& [file, rights] : {std::pair{&options_.key_files.all, Rights::all},
                                     {&options_.key_files.append, Rights::append},
                                     {&options_.key_files.read, Rights::read}}) {
    if (file->empty()) continue;
    VARVE_ASSIGN(const SharedKey key, read_key_file(*file));
    if (std::find(keys.begin(), keys.end(), key) != keys.end())
      return Status::invalid_argument("a key has one kind of rights", *file,
                                      "make another with `varve serve --new-key`");
    keys.push_back(key);
    key_holders_.rights.push_back(rights);
  }
  if (keys.empty()) {
    return Status::invalid_argument("who listens at TCP needs a key that the clients share",
                                    options_.listen.to_string(), "give --key-file FILE");
  }
  VARVE_ASSIGN(key_holders_.party, TlsParty::create(TlsParty::Role::server, std::move(keys)));
  return {};
}

void Server::accept_clients() {
  while (!stopping_) {
    pollfd waited[2] = {{listener_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    if (::poll(waited, 2, -1) < 0) {
      if (errno == EINTR) continue;
      break;
    }
    uint64_t news = 0;
    if (waited[1].revents != 0 && ::read(wake_.get(), &news, sizeof news) < 0 && errno != EAGAIN) break;
    reap();
    if (place_wanted_.exchange(false)) end_idle();
    if (waited[0].revents == 0 || stopping_) continue;
    UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket.valid()) {
      take_in(std::move(socket));
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      tell("no room for another connection");
      sleep_for(std::chrono::milliseconds(100));  // it is still there, and would be met at once
    }
  }
}

void Server::take_in(UniqueFd socket) {
  make_room();
  UniqueFd control(::fcntl(socket.get(), F_DUPFD_CLOEXEC, 0));
  if (!control.valid()) return tell("a client was turned away: too many open files");
  const size_t before = clients_.size();
  const Status taken = run_guarded([&]() -> Status {
    Client& client = clients_.emplace_back();
    client.control = std::move(control);
    client.hello_by = after_seconds(options_.limits.hello_seconds);
    VARVE_ASSIGN(client.thread, start_thread([this, &client, raw = socket.get()] {
                   serve(client, UniqueFd(raw));
                   if (client.standing == Standing::known) --known_count_;
                   // It is closed later, and would keep the other side waiting.
                   ::shutdown(client.control.get(), SHUT_RDWR);
                   client.ended = true;
                   wake();
                 }));
    socket.release();
    return {};
  });
  if (taken.ok()) return;
  if (clients_.size() > before) clients_.pop_back();
  tell("a client was turned away: the system refuses another thread, or memory");
}

void Server::make_room() {
  const auto strangers = std::count_if(clients_.begin(), clients_.end(), [](const Client& client) {
    return client.standing == Standing::stranger && !client.ended;
  });
  if (static_cast<size_t>(strangers) < options_.strangers_max) return;
  for (auto client = clients_.begin(); client != clients_.end(); ++client) {
    Standing standing = Standing::stranger;
    if (client->ended || !client->standing.compare_exchange_strong(standing, Standing::dismissed)) continue;
    ::shutdown(client->control.get(), SHUT_RDWR);
    client->thread.join();  // at once: before hello, it waits for nothing but the socket
    clients_.erase(client);
    return;
  }
}

void Server::end_idle() {
  Client* longest = nullptr;
  double since = steady_clock().seconds() - options_.idle_seconds;
  for (Client& client : clients_) {
    const double idle_since = client.idle_since;
    if (client.ended || client.standing != Standing::known || idle_since == kAtWork || idle_since > since) continue;
    longest = &client;
    since = idle_since;
  }
  if (longest == nullptr) return;
  longest->idle_since = kAtWork;  // not to be chosen again while it ends
  ::shutdown(longest->control.get(), SHUT_RDWR);
}

Status Server::admit(Client& client) {
  Standing standing = Standing::stranger;
  if (++known_count_ <= options_.connections_max && client.standing.compare_exchange_strong(standing, Standing::known))
    return {};
  --known_count_;
  tell("a client was turned away: too many connections");
  place_wanted_ = true;
  wake();
  return Status::busy("the server has as many connections as it takes");
}

Result<Server::Arrival> Server::make_stream(UniqueFd socket, Deadline deadline) const {
  if (key_holders_.party) {
    tune_tcp(socket.get());
    VARVE_ASSIGN(SecureStream secure, key_holders_.party->shake_hands(std::move(socket), deadline));
    return Arrival{std::move(secure.stream), key_holders_.rights.at(secure.key)};
  }
  VARVE_TRY(check_peer(socket.get()));
  return Arrival{make_socket_stream(std::move(socket)), options_.socket_rights};
}

void Server::serve(Client& client, UniqueFd socket) noexcept {
  try {
    const Status ended = converse(client, std::move(socket));
    if (!ended.ok()) tell("a connection ended", ended);
  } catch (const std::bad_alloc&) {
    tell("a connection ended: out of memory");
  } catch (const std::exception& unexpected) {
    tell(unexpected.what());
  }
}

Status Server::converse(Client& client, UniqueFd socket) {
  Result<Arrival> arrival = make_stream(std::move(socket), client.hello_by);
  Status ended = arrival.status();
  if (arrival.ok()) {
    Connection connection(
        *store_, std::move(arrival->stream), arrival->rights, options_.limits, [&] { return admit(client); },
        [&](bool rests) { client.idle_since = rests ? steady_clock().seconds() : kAtWork; });
    ended = connection.run(client.hello_by);
  }
  if (client.standing == Standing::dismissed)
    ended = Status::busy("it had to make room for others before it said hello");
  return ended;
}

void Server::tell(const char* what, const Status& why) const noexcept {
  try {
    options_.log(why.ok() ? what : what + (": " + why.to_string()));
  } catch (const std::exception&) {
    // There is no memory to say so either.
  }
}

void Server::reap() {
  for (auto client = clients_.begin(); client != clients_.end();) {
    if (!client->ended) {
      ++client;
      continue;
    }
    client->thread.join();
    client = clients_.erase(client);
  }
}

void Server::wake() {
  const uint64_t one = 1;
  if (::write(wake_.get(), &one, sizeof one) < 0 && errno != EAGAIN) tell("stopping late");
}

void Server::stop() {
  if (!acceptor_.joinable()) return;
  stopping_ = true;
  if (next_) next_->stop();
  gather_->stop();
  wake();
  acceptor_.join();
  listener_.reset();
  if (options_.listen.kind == ServerAddress::Kind::unix_socket) ::unlink(options_.listen.path.c_str());
  auto end_all = [this](int what) {
    for (const Client& client : clients_) ::shutdown(client.control.get(), what);
  };
  end_all(SHUT_RD);  // what has been asked is answered yet
  const Deadline patience = after_seconds(options_.stop_seconds);
  while (!clients_.empty() && MonotonicClock::now() < patience) {
    reap();
    if (!clients_.empty()) sleep_for(std::chrono::milliseconds(2));
  }
  end_all(SHUT_RDWR);
  for (Client& client : clients_) client.thread.join();
  clients_.clear();
}

}  // namespace varve
