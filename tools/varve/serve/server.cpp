#include "serve/server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "backend/folder_backend.h"
#include "core/clock.h"
#include "core/guarded.h"
#include "core/sync.h"
#include "serve/served_backend.h"
#include "service/location.h"
#include "service/socket.h"

namespace varve {

namespace {
/// How long a stranger may stay at least while others wait to be let in: who has the key needs less.
constexpr std::chrono::milliseconds kTimeOfStranger(250);
constexpr std::chrono::seconds kSignOfLife(2);
/// A client whose requests follow one another as closely is served by one thread, which waits for the next one itself.
constexpr std::chrono::milliseconds kBusyPause(5);
}  // namespace

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
  VARVE_ASSIGN(const UniqueId run, UniqueId::random());
  store_ = std::make_unique<ServedStore>(*place_.files, run);
  store_->chunks = chunks_.get();
  store_->committed = [this] { chunks_->keep_up(); };
  if (!options_.next.location.empty()) {
    VARVE_TRY(Location::parse(options_.next.location).status());
    next_ = std::make_unique<NextLevel>(*place_.backend, options_.next.location,
                                        ReachOptions{options_.key_files.all, options_.next.s3_endpoint});
    store_->transfer = [this](TransferDirection direction, const SetTransfer& what, NextLevel::Done done) {
      return next_->begin(direction, what, std::move(done));
    };
  }
  gather_ = std::make_unique<GatherService>(*place_.backend, options_.gather, options_.log);
  store_->gather = gather_.get();
  fit_to_descriptors();
  store_->connections_max = options_.connections_max;
  store_->boot = boot_id();
  wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.valid()) return Status::from_errno(errno, "make an event", "");
  VARVE_TRY(listen());
  share_out();
  ::fcntl(listener_.get(), F_SETFL, ::fcntl(listener_.get(), F_GETFL) | O_NONBLOCK);
  VARVE_ASSIGN(threads_, PollingThreads::start(options_.threads_max));
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
    key_holders_.rights = {options_.socket_rights};
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

void Server::fit_to_descriptors() {
  const size_t wanted = options_.connections_max;
  options_.connections_max = std::min(wanted, 3 * descriptors_for(wanted, 4));
  if (options_.connections_max < wanted)
    tell("fewer connections than wanted: this process may have too few files open");
}

void Server::share_out() {
  const size_t keys = key_holders_.rights.size();
  constexpr size_t many = 1'000'000;
  descriptors_ = descriptors_for(many, 1);
  for (const Rights rights : key_holders_.rights) {
    const KeyShare::Limits limits{.turns = share_of_key(options_.threads_max, keys)};
    key_holders_.shares.push_back(std::make_unique<KeyShare>(rights, limits));
  }
  const MutexLock lock(mutex_);
  share_files();
}

void Server::share_files() {
  const size_t kept = std::min(options_.connections_max, descriptors_ / 4);
  const size_t left = descriptors_ - std::min(descriptors_, std::max(clients_.known.size(), kept));
  for (const auto& share : key_holders_.shares) share->limit_files(share_of_key(left, key_holders_.shares.size()));
}

void Server::accept_clients() {
  while (!stopping_) {
    const Look look = look_after_clients();
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(look.again - MonotonicClock::now());
    pollfd waited[2] = {{look.room ? listener_.get() : -1, POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    if (::poll(waited, 2, static_cast<int>(std::max<int64_t>(wait.count(), 0))) < 0) {
      if (errno == EINTR) continue;
      break;
    }
    uint64_t news = 0;
    if (waited[1].revents != 0 && ::read(wake_.get(), &news, sizeof news) < 0 && errno != EAGAIN) break;
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

Server::Look Server::look_after_clients() {
  const Moment now = MonotonicClock::now();
  const MutexLock lock(mutex_);
  if (clients_.next_sign_of_life <= now) {
    clients_.next_sign_of_life = now + kSignOfLife;
    const double late = steady_clock().seconds() - options_.limits.frame_seconds;
    for (Client& client : clients_.known) {
      look_for_news(client);
      if (is_late(client, late)) ::shutdown(client.socket(), SHUT_RDWR);
    }
  }
  Look look{.again = clients_.next_sign_of_life};
  size_t strangers = 0;
  Moment oldest = now;
  for (Client& client : clients_.strangers) {
    if (const Deadline late = hello_by(client); late <= now) {
      ::shutdown(client.socket(), SHUT_RDWR);
    } else {
      look.again = std::min(look.again, late);
    }
    if (client.standing == Standing::stranger && strangers++ == 0) oldest = client.arrived;
  }
  // Those that are dismissed are soon gone.
  look.room = clients_.strangers.size() < 2 * options_.strangers_max;
  if (strangers >= options_.strangers_max && now - oldest < kTimeOfStranger) {
    look.room = false;
    look.again = std::min(look.again, oldest + kTimeOfStranger);
  }
  clients_.crowded = !look.room;
  return look;
}

bool Server::is_late(const Client& client, double late) {
  const double begun_since = client.begun_since;
  if (begun_since != kNotBegun && begun_since < late) return true;
  // Nobody is woken by a socket that takes no output, and the turn that the client may have would never end.
  return client.turn == Turn::news && client.news_since < late && !is_writable(client.socket());
}

void Server::take_in(UniqueFd socket) {
  make_room();
  const Status taken = run_guarded([&] { return begin_client(std::move(socket)); });
  if (!taken.ok()) tell("a client was turned away", taken);
}

Status Server::begin_client(UniqueFd socket) {
  std::list<Client> coming;
  Client& client = coming.emplace_back(*this, std::move(socket));
  client.place = coming.begin();
  if (!key_holders_.party) VARVE_TRY(begin_connection(client));  // nothing has to come before
  const MutexLock lock(mutex_);
  VARVE_TRY(threads_->add(client));
  clients_.strangers.splice(clients_.strangers.end(), coming);
  return {};
}

void Server::make_room() {
  const MutexLock lock(mutex_);
  auto is_stranger = [](const Client& client) { return client.standing == Standing::stranger; };
  const auto strangers = std::count_if(clients_.strangers.begin(), clients_.strangers.end(), is_stranger);
  if (static_cast<size_t>(strangers) < options_.strangers_max) return;
  for (Client& client : clients_.strangers) {
    Standing standing = Standing::stranger;
    if (!client.standing.compare_exchange_strong(standing, Standing::dismissed)) continue;
    ::shutdown(client.socket(), SHUT_RDWR);
    return;
  }
}

void Server::end_idle() {
  const MutexLock lock(mutex_);
  Client* longest = nullptr;
  double since = steady_clock().seconds() - options_.idle_seconds;
  for (Client& client : clients_.known) {
    const double idle_since = client.idle_since;
    if (idle_since == kAtWork || idle_since > since) continue;
    longest = &client;
    since = idle_since;
  }
  if (longest == nullptr) return;
  longest->idle_since = kAtWork;  // not to be chosen again while it ends
  ::shutdown(longest->socket(), SHUT_RDWR);
}

Status Server::admit(Client& client) {
  {
    const MutexLock lock(mutex_);
    Standing standing = Standing::stranger;
    if (clients_.known.size() < options_.connections_max &&
        client.standing.compare_exchange_strong(standing, Standing::known)) {
      clients_.known.splice(clients_.known.end(), clients_.strangers, client.place);
      share_files();
      if (std::exchange(clients_.crowded, false)) wake();
      return {};
    }
  }
  tell("a client was turned away: too many connections");
  place_wanted_ = true;
  wake();
  return Status::busy("the server has as many connections as it takes");
}

Result<Server::Arrival> Server::make_stream(UniqueFd&& socket, Deadline deadline) const {
  if (key_holders_.party) {
    tune_tcp(socket.get());
    VARVE_ASSIGN(SecureStream secure, key_holders_.party->shake_hands(std::move(socket), deadline));
    return Arrival{std::move(secure.stream), secure.key};
  }
  VARVE_TRY(check_peer(socket.get()));
  return Arrival{make_socket_stream(std::move(socket)), 0};
}

Status Server::begin_connection(Client& client) {
  VARVE_ASSIGN(Arrival arrival, make_stream(std::move(client.own_socket()), hello_by(client)));
  client.stream = std::move(arrival.stream);
  client.connection = std::make_unique<Connection>(
      *store_, std::move(client.stream), *key_holders_.shares.at(arrival.key), options_.limits, hello_by(client),
      [this, &client] { return admit(client); }, [this, &client] { note_news(client); });
  return {};
}

Deadline Server::hello_by(const Client& client) const {
  const std::chrono::duration<double> limit(options_.limits.hello_seconds);
  return client.arrived + std::chrono::duration_cast<MonotonicClock::duration>(limit);
}

Result<Connection::Next> Server::converse(Client& client, DataBuffer& buffer) {
  client.idle_since = kAtWork;
  client.turn = Turn::at_work;
  if (!client.connection) {
    VARVE_TRY(begin_connection(client));
    return client.connection->begin();
  }
  // What a request takes once it has come is not the client's time.
  const double begun_since = client.begun_since.exchange(kNotBegun);
  VARVE_ASSIGN(const Connection::Next next, client.connection->serve(buffer));
  if (next == Connection::Next::rests && client.connection->has_begun())
    client.begun_since = begun_since != kNotBegun ? begun_since : steady_clock().seconds();
  return next;
}

void Server::serve(Client& client, DataBuffer& buffer) noexcept {
  Connection::Next next = Connection::Next::ended;
  const double rested_seconds = steady_clock().seconds() - client.idle_since;
  const bool busy = rested_seconds < std::chrono::duration<double>(kBusyPause).count();
  do {
    next = serve_once(client, buffer);
    if (next == Connection::Next::rests) client.idle_since = steady_clock().seconds();
  } while (next == Connection::Next::rests && busy && threads_->has_spare() &&
           wait_to_read(client.socket(), kBusyPause));
  switch (next) {
    case Connection::Next::rests:
      client.connection->rest();
      client.turn = Turn::at_work;  // nothing waits for what there may be news of
      threads_->await_input(client);
      break;
    case Connection::Next::goes_on: threads_->take_turn(client); break;
    case Connection::Next::waits:
      client.connection->rest();
      wait_for_news(client);
      break;
    case Connection::Next::ended: end(client); break;
  }
}

Connection::Next Server::serve_once(Client& client, DataBuffer& buffer) noexcept {
  try {
    const Result<Connection::Next> served = converse(client, buffer);
    if (served.ok()) return *served;
    if (client.standing == Standing::dismissed) {
      tell("a connection ended: it had to make room for others before it said hello");
    } else {
      tell("a connection ended", served.status());
    }
  } catch (const std::bad_alloc&) {
    tell("a connection ended: out of memory");
  } catch (const std::exception& unexpected) {
    tell(unexpected.what());
  }
  return Connection::Next::ended;
}

void Server::note_news(Client& client) {
  client.news_since = steady_clock().seconds();
  if (client.turn.exchange(Turn::news) == Turn::waits) threads_->take_turn(client);
}

void Server::wait_for_news(Client& client) {
  Turn turn = Turn::at_work;
  if (!client.turn.compare_exchange_strong(turn, Turn::waits)) threads_->take_turn(client);
}

void Server::look_for_news(Client& client) {
  Turn turn = Turn::waits;
  if (!client.turn.compare_exchange_strong(turn, Turn::news)) return;
  client.news_since = steady_clock().seconds();
  threads_->take_turn(client);
}

void Server::end(Client& client) noexcept {
  threads_->remove(client);
  std::list<Client> ending;  // its files and its socket are closed without the lock
  const MutexLock lock(mutex_);
  std::list<Client>& all = client.standing == Standing::known ? clients_.known : clients_.strangers;
  ending.splice(ending.end(), all, client.place);
  share_files();
  if (std::exchange(clients_.crowded, false)) wake();
  ended_.notify_all();
}

void Server::tell(const char* what, const Status& why) const noexcept {
  try {
    options_.log(why.ok() ? what : what + (": " + why.to_string()));
  } catch (const std::exception&) {
    // There is no memory to say so either.
  }
}

void Server::wake() {
  const uint64_t one = 1;
  if (::write(wake_.get(), &one, sizeof one) < 0 && errno != EAGAIN) tell("stopping late");
}

void Server::shut_down_all(int what) {
  const MutexLock lock(mutex_);
  for (std::list<Client>* all : {&clients_.strangers, &clients_.known}) {
    for (Client& client : *all) {
      ::shutdown(client.socket(), what);
      look_for_news(client);
    }
  }
}

bool Server::wait_for_all_to_end(Deadline deadline) {
  const MutexLock lock(mutex_);
  return ended_.wait_until(mutex_, deadline, [this]() VARVE_REQUIRES(mutex_) {
    return clients_.strangers.empty() && clients_.known.empty();
  });
}

void Server::tell(Metrics& metrics) {
  size_t strangers = 0, known = 0;
  {
    const MutexLock lock(mutex_);
    strangers = clients_.strangers.size();
    known = clients_.known.size();
  }
  metrics
      .gauge("varve_server_connections", "Connections that are open, of clients and of those who have not said hello.")
      .sample(static_cast<double>(known), {{"standing", "known"}})
      .sample(static_cast<double>(strangers), {{"standing", "stranger"}});
  metrics.gauge("varve_server_connections_max", "Connections that the server takes.")
      .sample(static_cast<double>(options_.connections_max));
  metrics.gauge("varve_server_start_timestamp_seconds", "When the server was started.")
      .sample(static_cast<double>(started_s_));
  store_->counters.tell(metrics);
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
  shut_down_all(SHUT_RD);  // what has been asked is answered yet
  Deadline patience = after_seconds(options_.stop_seconds);
  while (!wait_for_all_to_end(patience)) {
    shut_down_all(SHUT_RDWR);
    patience = after_seconds(1);
  }
  threads_->stop();
  if (next_) next_->wait();
}

}  // namespace varve
