#include "service/server.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "service/unix_socket.h"

namespace varve {

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
  VARVE_ASSIGN(folder_, ServedFolder::open(options_.folder, options_.rule));
  chunks_ = std::make_unique<ChunkService>(options_.folder, options_.index_memory_bytes);
  store_ = std::make_unique<ServedStore>(*folder_);
  store_->chunks = chunks_.get();
  store_->connections_max = options_.connections_max;
  VARVE_ASSIGN(store_->server, UniqueId::random());
  store_->boot = boot_id();
  wake_.reset(::eventfd(0, EFD_CLOEXEC));
  if (!wake_.valid()) return Status::from_errno(errno, "make an event", "");
  if (options_.listen.kind == ServerAddress::Kind::tcp)
    return Status::unsupported("TCP is not there yet", options_.listen.to_string());
  VARVE_ASSIGN(listener_, listen_unix(options_.listen.path));
  try {
    acceptor_ = std::thread([this] { accept_clients(); });
  } catch (const std::system_error&) {
    return Status::resource_limit("the system refuses another thread");
  }
  return {};
}

void Server::accept_clients() {
  while (!stopping_) {
    pollfd waited[2] = {{listener_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    if (::poll(waited, 2, -1) < 0 && errno != EINTR) break;
    reap();
    if (waited[1].revents != 0 || stopping_) break;
    if (waited[0].revents == 0) continue;
    UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket.valid()) {
      admit(std::move(socket));
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      options_.log("no room for another connection: " + Status::from_errno(errno, "accept", "").to_string());
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // it is still there, and would be met at once
    }
  }
}

void Server::admit(UniqueFd socket) {
  if (clients_.size() >= options_.connections_max) {
    options_.log("a client was turned away: too many connections");
    return;  // closes it; a client tries again for a while
  }
  Client& client = clients_.emplace_back();
  try {
    client.thread = std::thread([this, &client, raw = socket.get()] { serve(client, UniqueFd(raw)); });
    socket.release();
  } catch (const std::system_error&) {
    clients_.pop_back();
    options_.log("a client was turned away: the system refuses another thread");
  }
}

Result<std::unique_ptr<Stream>> Server::make_stream(UniqueFd socket) const {
  VARVE_TRY(check_peer(socket.get()));
  return make_socket_stream(std::move(socket));
}

void Server::serve(Client& client, UniqueFd socket) {
  Status ended;
  if (Result<std::unique_ptr<Stream>> stream = make_stream(std::move(socket)); stream.ok()) {
    Connection connection(*store_, std::move(*stream), options_.limits);
    {
      const std::lock_guard lock(client.mutex);
      client.connection = &connection;
    }
    if (!stopping_) ended = connection.run();
    const std::lock_guard lock(client.mutex);
    client.connection = nullptr;
  } else {
    ended = stream.status();
  }
  if (!ended.ok()) options_.log("a connection ended: " + ended.to_string());
  client.ended = true;
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

void Server::stop() {
  if (!acceptor_.joinable()) return;
  stopping_ = true;
  const uint64_t one = 1;
  if (::write(wake_.get(), &one, sizeof one) < 0) options_.log("stopping late");
  acceptor_.join();
  listener_.reset();
  if (options_.listen.kind == ServerAddress::Kind::unix_socket) ::unlink(options_.listen.path.c_str());
  auto each = [this](void (Connection::*what)()) {
    for (Client& client : clients_) {
      const std::lock_guard lock(client.mutex);
      if (client.connection != nullptr) (client.connection->*what)();
    }
  };
  each(&Connection::shut_down);
  const Deadline patience = after_seconds(options_.stop_seconds);
  while (!clients_.empty() && std::chrono::steady_clock::now() < patience) {
    reap();
    if (!clients_.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  each(&Connection::cut);
  for (Client& client : clients_) client.thread.join();
  clients_.clear();
}

}  // namespace varve
