#include "service/remote_file_system.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <fstream>
#include <limits>
#include <thread>

#include "core/file_system_contract.h"
#include "serve/test_server.h"
#include "service/socket.h"
#include "service/wire.h"

namespace varve {
namespace {

struct RemoteSubject final : FileSystemSubject {
  explicit RemoteSubject(TestServer::Kind kind, bool take_descriptors = true)
      : server(kind), link(server.connect(take_descriptors)), remote(*link) {
    fs = &remote;
    directory = remote.root();
  }
  TestServer server;
  std::unique_ptr<ServerLink> link;
  RemoteFileSystem remote;
};

INSTANTIATE_TEST_SUITE_P(
    Kinds, EveryFileSystem,
    testing::Values(FileSystemKind{"unix_socket",
                                   [] { return std::make_unique<RemoteSubject>(TestServer::Kind::unix_socket); }},
                    FileSystemKind{"unix_socket_alone",
                                   [] { return std::make_unique<RemoteSubject>(TestServer::Kind::unix_socket, false); }}
#ifdef VARVE_HAVE_TLS
                    ,
                    FileSystemKind{"tls", [] { return std::make_unique<RemoteSubject>(TestServer::Kind::tls); }}
#endif
                    ),
    [](const auto& parameter) { return std::string(parameter.param.name); });

/// Whose contents pass through the socket, as they do over TCP.
class RemoteFiles : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return join_path(fs_.root(), name); }
  std::string read(const std::string& name) {
    const auto contents = read_file(fs_, path(name), 64_MiB);
    return contents.ok() ? std::string(as_text(*contents)) : "error: " + contents.status().to_string();
  }
  void restart() {
    const UniqueId boot = server_.server->store().boot;
    server_.stop();
    server_.start();
    server_.server->store().boot = boot;
  }
  void restart_machine() {
    restart();
    server_.server->store().boot = UniqueId::random().value();
  }

  TestServer server_;
  std::unique_ptr<ServerLink> link_ = server_.connect(false);
  RemoteFileSystem fs_{*link_};
};

/// Between a client and a server; it may keep what the server says to itself.
class Relay {
 public:
  Relay(const std::string& path, std::string server) : server_(std::move(server)) {
    listening_ = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(::bind(listening_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(listening_.get(), 16), 0);
    threads_.emplace_back([this] { accept_all(); });
  }
  ~Relay() {
    ::shutdown(listening_.get(), SHUT_RDWR);
    threads_.front().join();  // nobody comes any more
    for (const UniqueFd& one : sockets_) ::shutdown(one.get(), SHUT_RDWR);
    for (size_t i = 1; i < threads_.size(); ++i) threads_[i].join();
  }
  /// So many are passed on, and those that follow are not.
  void pass_answers(int count) { answers_left_ = count; }
  /// Once the server has ended: until all that it said before has come here.
  void await_silence() const {
    while (passing_ > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

 private:
  void accept_all() {
    for (;;) {
      UniqueFd client(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (client.get() < 0) return;
      Result<UniqueFd> server = connect_unix(server_);
      if (!server.ok()) continue;
      const int from = client.get(), to = server->get();
      sockets_.push_back(std::move(client));
      sockets_.push_back(std::move(*server));
      passing_ += 2;
      threads_.emplace_back([this, from, to] { pass(from, to, false); });
      threads_.emplace_back([this, from, to] { pass(to, from, true); });
    }
  }
  void pass(int from, int to, bool is_answer) {
    std::array<std::byte, 65536> bytes;
    for (;;) {
      const ssize_t count = ::recv(from, bytes.data(), bytes.size(), 0);
      if (count <= 0) break;
      if (is_answer && answers_left_-- <= 0) continue;
      if (::send(to, bytes.data(), static_cast<size_t>(count), MSG_NOSIGNAL) != count) break;
    }
    ::shutdown(from, SHUT_RDWR);
    ::shutdown(to, SHUT_RDWR);
    --passing_;
  }

  const std::string server_;
  UniqueFd listening_;
  std::atomic<int> answers_left_{std::numeric_limits<int>::max()}, passing_{0};
  std::deque<UniqueFd> sockets_;
  std::deque<std::thread> threads_;
};

/// One name, in the folder of `name`, is removed; its answer is lost, the server ends, and another one does what
/// `meanwhile` does before the client comes again.
Status remove_beside_a_restart(TestServer& server, const std::string& name, const std::function<void()>& meanwhile) {
  const std::string folder = server.options.folder, own_path = join_path(folder, name);
  std::filesystem::create_directories(std::filesystem::path(own_path).parent_path());
  std::ofstream(own_path) << "old";
  const std::string between = server.work() + "/between-" + UniqueId::random()->hex().substr(0, 8);
  Relay relay(between, server.options.listen.path);
  LinkOptions how = server.link_options;
  how.take_descriptors = false;
  ServerAddress address = server.options.listen;
  address.path = between;
  const auto link = ServerLink::open(address, how).value();
  RemoteFileSystem remote(*link);
  EXPECT_TRUE(remote.stat(join_path(remote.root(), name)).ok());
  Status removed;
  relay.pass_answers(name.starts_with("sets/") ? 1 : 0);  // to the question whether the server is there
  std::thread client([&] { removed = remote.remove(join_path(remote.root(), name)); });
  while (std::filesystem::exists(own_path)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  server.stop();
  relay.await_silence();
  meanwhile();
  relay.pass_answers(std::numeric_limits<int>::max());
  server.start();
  client.join();
  return removed;
}

TEST_F(RemoteFiles, AreNotRemovedForOthersThatHadTheNameBefore) {
  const std::string set = join_path(server_.options.folder, "sets/run/7.set");
  const Status removed = remove_beside_a_restart(server_, "sets/run/7.set", [&] { std::ofstream(set) << "new"; });
  EXPECT_EQ(removed.code(), StatusCode::io_error) << removed.to_string();
  EXPECT_EQ(read("sets/run/7.set"), "new");
}

TEST_F(RemoteFiles, AreRemovedOnceWhereTheServerIsRestarted) {
  EXPECT_TRUE(remove_beside_a_restart(server_, "sets/run/7.set", [] {}).ok());
  // Nobody gives an arena the name of another one: what is there was not removed yet.
  const std::string arena = "arenas/0123456789abcdef0123456789abcdef.arena";
  const std::string own_path = join_path(server_.options.folder, arena);
  EXPECT_TRUE(remove_beside_a_restart(server_, arena, [&] { std::ofstream(own_path) << "back"; }).ok());
  EXPECT_FALSE(std::filesystem::exists(own_path));
}

TEST_F(RemoteFiles, StayInTheFolderThatIsServed) {
  for (const std::string& outside : {std::string("/etc/passwd"), parent_path(fs_.root()), fs_.root() + "x",
                                     path("../x"), path("a/../../x"), path("/etc/passwd")}) {
    EXPECT_EQ(fs_.stat(outside).status().code(), StatusCode::permission_denied) << outside;
    EXPECT_EQ(fs_.open_read(outside).status().code(), StatusCode::permission_denied) << outside;
    EXPECT_EQ(fs_.create(outside).status().code(), StatusCode::permission_denied) << outside;
    EXPECT_EQ(fs_.rename(path("a"), outside).code() == StatusCode::ok, false) << outside;
  }
}

TEST_F(RemoteFiles, HaveTheRoomThatTheServersDiskHas) {
  const double room = static_cast<double>(posix_file_system().free_bytes(server_.options.folder).value());
  EXPECT_NEAR(static_cast<double>(fs_.free_bytes(fs_.root()).value()), room, room / 2) << "others write there, too";
  EXPECT_EQ(fs_.free_bytes(path("../x")).status().code(), StatusCode::permission_denied);
}

TEST_F(RemoteFiles, DoNotFollowLinks) {
  const std::string folder = server_.options.folder;
  std::filesystem::create_symlink("/etc", folder + "/out");
  std::filesystem::create_symlink("/etc/passwd", folder + "/file");
  EXPECT_EQ(fs_.open_read(path("out/passwd")).status().code(), StatusCode::permission_denied);
  EXPECT_EQ(fs_.open_read(path("file")).status().code(), StatusCode::permission_denied);
  EXPECT_EQ(fs_.list(path("out")).status().code(), StatusCode::permission_denied);
  EXPECT_EQ(fs_.create(path("out/x")).status().code(), StatusCode::permission_denied);
  EXPECT_FALSE(fs_.stat(path("out/passwd")).ok());
}

TEST_F(RemoteFiles, OfAnyStoreAreServedAndNoOthers) {
  TestServer strict(TestServer::Kind::unix_socket, is_store_path);
  const auto link = strict.connect();
  RemoteFileSystem fs(*link);
  EXPECT_TRUE(fs.create_directory(fs.root() + "/arenas").ok());
  EXPECT_EQ(fs.create(fs.root() + "/arenas/x").status().code(), StatusCode::permission_denied);
  EXPECT_EQ(fs.create(fs.root() + "/.bashrc").status().code(), StatusCode::permission_denied);
  EXPECT_TRUE(fs.create(fs.root() + "/arenas/0123456789abcdef0123456789abcdef.part").ok());
}

TEST_F(RemoteFiles, LargeReadsAndWritesAreWhole) {
  Buffer block(8_MiB + 4096);
  std::byte* const aligned = block.data() + (4096 - reinterpret_cast<uintptr_t>(block.data()) % 4096) % 4096;
  const MutableByteSpan contents(aligned, 7_MiB + 4096);
  uint32_t random = 7;
  for (std::byte& byte : contents) byte = static_cast<std::byte>((random = random * 1664525 + 1013904223) >> 24);
  auto file = fs_.create(path("large"), {.direct = true}).value();
  ASSERT_TRUE(file->write_at(0, contents).ok());
  ASSERT_TRUE(file->truncate(7_MiB + 5).ok());
  ASSERT_TRUE(file->sync().ok());
  ByteVector back(8_MiB);
  EXPECT_EQ(fs_.open_read(path("large")).value()->read_at(1, back).value(), 7_MiB + 4);
  EXPECT_TRUE(std::equal(contents.begin() + 1, contents.begin() + 7_MiB + 5, back.begin()));
}

TEST_F(RemoteFiles, LongListsAreWhole) {
  const std::string folder = server_.options.folder + "/many";
  std::filesystem::create_directory(folder);
  for (int i = 0; i < 6000; ++i)
    ASSERT_TRUE(posix_file_system().create(folder + "/" + std::string(200, 'a') + std::to_string(i)).ok());
  const auto entries = fs_.list(path("many")).value();
  EXPECT_EQ(entries.size(), 6000u);
}

TEST_F(RemoteFiles, AreReadOnAfterARestart) {
  ASSERT_TRUE(write_file_durably(fs_, path("a"), as_bytes("text")).ok());
  auto file = fs_.open_read(path("a")).value();
  restart();
  ByteVector buffer(4);
  EXPECT_EQ(file->read_at(0, buffer).value(), 4u);
  EXPECT_EQ(as_text(buffer), "text");
  EXPECT_EQ(read("a"), "text");
}

TEST_F(RemoteFiles, OfWhichSeveralAreOpenOverARestartAreEachReadAsThemselves) {
  const std::vector<std::string> names{"a", "b", "c"};
  std::vector<std::unique_ptr<File>> files;
  for (const std::string& name : names) {
    ASSERT_TRUE(write_file_durably(fs_, path(name), as_bytes("text of " + name)).ok());
    files.push_back(fs_.open_read(path(name)).value());
  }
  restart();
  // The last one first: it is opened again when no other is.
  for (size_t i : {2, 1, 0, 0, 1, 2}) {
    ByteVector buffer(9);
    ASSERT_EQ(files[i]->read_at(0, buffer).value(), buffer.size());
    EXPECT_EQ(as_text(buffer), "text of " + names[i]);
  }
}

TEST_F(RemoteFiles, OfBeforeARestartCloseNobodyElsesWhenTheyAreClosed) {
  ASSERT_TRUE(write_file_durably(fs_, path("a"), as_bytes("text")).ok());
  auto old = fs_.open_read(path("a")).value();
  restart();
  CreateRequest create;
  create.path = "b";
  const OpenedFile written = link_->ask(std::move(create))->fields;
  const OpenedFile read = link_->ask(OpenRequest{"a"})->fields;
  old.reset();
  EXPECT_EQ(link_->ask(SizeRequest{written.handle})->outcome, Outcome::done);
  EXPECT_EQ(link_->ask(SizeRequest{read.handle})->outcome, Outcome::done);
}

TEST_F(RemoteFiles, AreNotMistakenForOthersAfterARestart) {
  ASSERT_TRUE(write_file_durably(fs_, path("a"), as_bytes("old text")).ok());
  auto file = fs_.open_read(path("a")).value();
  server_.stop();
  std::filesystem::remove(server_.options.folder + "/a");
  std::this_thread::sleep_for(
      std::chrono::milliseconds(20));  // a kernel's clock may tick only a hundred times a second
  ASSERT_TRUE(write_file_durably(posix_file_system(), server_.options.folder + "/a", as_bytes("new text")).ok());
  server_.start();
  ByteVector buffer(4);
  EXPECT_EQ(file->read_at(0, buffer).status().code(), StatusCode::not_found);
}

TEST_F(RemoteFiles, AreWrittenOnAfterARestart) {
  for (const bool direct : {false, true}) {
    SCOPED_TRACE(direct);
    const std::string name = direct ? "direct" : "buffered";
    auto file = fs_.create(path(name), {.direct = direct}).value();
    alignas(kDirectAlignment) static std::byte block[kDirectAlignment];
    std::string expected;
    for (char letter = 'a'; letter < 'h'; ++letter) {
      std::fill_n(block, sizeof block, static_cast<std::byte>(letter));
      ASSERT_TRUE(file->write_at(expected.size(), block).ok());
      expected.append(sizeof block, letter);
      if (letter % 2 == 0) restart();
    }
    EXPECT_EQ(file->size().value(), expected.size());
    ASSERT_TRUE(file->sync().ok());
    EXPECT_EQ(read(name), expected);
  }
}

TEST_F(RemoteFiles, AreGivenUpIfTheyAreNotThereAfterARestart) {
  auto file = fs_.create(path("a")).value();
  ASSERT_TRUE(file->write_at(0, as_bytes("text")).ok());
  server_.stop();
  std::filesystem::remove(server_.options.folder + "/a");
  server_.start();
  EXPECT_FALSE(file->write_at(4, as_bytes("more")).ok());
  EXPECT_FALSE(file->sync().ok());
  EXPECT_FALSE(file->write_at(0, as_bytes("again")).ok());
  EXPECT_EQ(fs_.stat(path("a")).status().code(), StatusCode::not_found);
}

TEST_F(RemoteFiles, AreGivenUpIfTheMachineWasRestarted) {
  auto file = fs_.create(path("a")).value();
  ASSERT_TRUE(file->write_at(0, as_bytes("text")).ok());
  restart_machine();
  const Status written = file->write_at(4, as_bytes("more"));
  EXPECT_EQ(written.code(), StatusCode::io_error);
  EXPECT_NE(written.message().find("machine was restarted"), std::string_view::npos) << written.to_string();
  EXPECT_FALSE(file->sync().ok());
}

TEST_F(RemoteFiles, LoseTheirNamesWithThePowerUnlessTheseWereSynced) {
  const std::string folder = path("folder");
  const std::vector<std::pair<const char*, std::function<Status()>>> changes = {
      {"create", [&] { return fs_.create(path("folder/a")).status(); }},
      {"rename out", [&] { return fs_.rename(path("folder/a"), path("a")); }},
      {"rename in", [&] { return fs_.rename_no_replace(path("a"), path("folder/b")); }},
      {"remove", [&] { return fs_.remove(path("folder/b")); }},
      {"create directory", [&] { return fs_.create_directory(path("folder/c")); }},
      {"remove directory", [&] { return fs_.remove_directory(path("folder/c")); }}};
  ASSERT_TRUE(fs_.create_directory(folder).ok());
  for (const auto& [what, change] : changes) {
    SCOPED_TRACE(what);
    ASSERT_TRUE(change().ok());
    restart();
    EXPECT_TRUE(fs_.sync_directory(folder).ok()) << "the server's end alone loses nothing";
    restart_machine();
    EXPECT_TRUE(fs_.sync_directory(folder).ok()) << "they were durable";
  }
  for (const auto& [what, change] : changes) {
    SCOPED_TRACE(what);
    ASSERT_TRUE(change().ok());
    restart_machine();
    const Status synced = fs_.sync_directory(folder);
    EXPECT_EQ(synced.code(), StatusCode::io_error);
    EXPECT_EQ(synced.subject(), folder);
    EXPECT_FALSE(synced.hint().empty());
    EXPECT_TRUE(fs_.sync_directory(folder).ok()) << "of what is done anew";
  }
  EXPECT_EQ(fs_.sync_directory(fs_.root()).code(), StatusCode::io_error) << "names came and went there, too";
}

TEST_F(RemoteFiles, AreNotBelievedWhenTheMachineIsNotKnownByAServerThatIsAnother) {
  server_.server->store().boot = {};
  const auto link = server_.connect(false);
  RemoteFileSystem fs(*link);
  ASSERT_TRUE(fs.create_directory(path("folder")).ok());
  EXPECT_TRUE(fs.sync_directory(fs.root()).ok());
  ASSERT_TRUE(fs.create(path("folder/a")).ok());
  restart();
  EXPECT_EQ(fs.sync_directory(path("folder")).code(), StatusCode::io_error);
}

TEST_F(RemoteFiles, AreWatchedByWhoGoesByNamesOfOthers) {
  ASSERT_TRUE(fs_.create_directory(path("folder")).ok());
  auto watch = fs_.watch_power().value();
  EXPECT_TRUE(fs_.sync_directory(path("folder")).ok());
  restart();
  EXPECT_TRUE(fs_.sync_directory(path("folder")).ok());
  restart_machine();
  EXPECT_EQ(fs_.sync_directory(path("folder")).code(), StatusCode::io_error);
  EXPECT_EQ(fs_.sync_directory(path("folder")).code(), StatusCode::io_error);
  watch = fs_.watch_power().value();
  EXPECT_TRUE(fs_.sync_directory(path("folder")).ok());
}

TEST_F(RemoteFiles, AreWatchedInTheRunThatIsThereNow) {
  restart_machine();
  const auto watch = fs_.watch_power().value();  // by way of a connection that is dead
  ASSERT_TRUE(fs_.create_directory(path("folder")).ok());
  EXPECT_TRUE(fs_.sync_directory(fs_.root()).ok());
}

/// Serves one client, up to the sync of a folder, in which it ends.
void serve_until_a_folder_is_synced(const std::string& path) {
  const UniqueFd listener = listen_unix(path).value();
  Wire wire(make_socket_stream(UniqueFd(::accept(listener.get(), nullptr, nullptr))));
  while (true) {
    const Wire::Head head = wire.receive_head(after_seconds(10)).value();
    if (head.header.message == SyncDirectoryRequest::kMessage.number) return;
    WireHeader header = head.header;
    header.flags = WireHeader::kReply;
    const UniqueId run = UniqueId::random().value();
    const bool greets = head.header.message == HelloRequest::kMessage.number;
    const ByteVector reply =
        greets ? encode_fields(ReplyTo<HelloRequest>(ServerFacts{run, run})) : encode_fields(Reply<NoFields>());
    ASSERT_TRUE(wire.send(header, reply, {}, after_seconds(10)).ok());
  }
}

TEST_F(RemoteFiles, HaveNoDurableNamesIfTheServerEndsDuringTheSync) {
  server_.stop();
  std::thread servers([this] {
    serve_until_a_folder_is_synced(server_.options.listen.path);
    server_.start();
  });
  std::unique_ptr<ServerLink> link;
  while (!link) {
    auto opened = ServerLink::open(server_.options.listen, server_.link_options);
    if (opened.ok()) link = *std::move(opened);
  }
  RemoteFileSystem fs(*link);
  const Status synced = fs.sync_directory(fs.root());
  EXPECT_EQ(synced.code(), StatusCode::io_error);
  EXPECT_NE(synced.message().find("while the folder was made durable"), std::string_view::npos) << synced.to_string();
  EXPECT_TRUE(fs.sync_directory(fs.root()).ok());
  servers.join();
}

TEST_F(RemoteFiles, AreGivenUpIfASyncIsNotAnswered) {
  auto file = fs_.create(path("a")).value();
  ASSERT_TRUE(file->write_at(0, as_bytes("text")).ok());
  server_.stop();
  std::thread starter([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    server_.start();
  });
  EXPECT_EQ(file->sync().code(), StatusCode::io_error);
  starter.join();
  EXPECT_EQ(file->sync().code(), StatusCode::io_error);
  EXPECT_EQ(file->write_at(0, as_bytes("x")).code(), StatusCode::io_error);
}

TEST_F(RemoteFiles, WaitForAServerThatComesBack) {
  ASSERT_TRUE(write_file_durably(fs_, path("a"), as_bytes("text")).ok());
  server_.stop();
  std::thread starter([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    server_.start();
  });
  EXPECT_EQ(read("a"), "text");
  starter.join();
}

TEST_F(RemoteFiles, GiveUpOnAServerThatDoesNotComeBack) {
  LinkOptions impatient = server_.link_options;
  impatient.reconnect_seconds = 0.2;
  impatient.take_descriptors = false;
  const auto link = ServerLink::open(server_.options.listen, impatient).value();
  RemoteFileSystem fs(*link);
  auto file = fs.create(path("a")).value();
  server_.stop();
  const Status failed = fs.stat(path("a")).status();
  EXPECT_EQ(failed.code(), StatusCode::io_error);
  EXPECT_NE(failed.message().find("does not answer"), std::string_view::npos) << failed.to_string();
  EXPECT_FALSE(failed.hint().empty());
  EXPECT_EQ(file->write_at(0, as_bytes("x")).code(), StatusCode::io_error);
}

/// Serves whoever comes, opens every file, and does not know any that it has opened. Clients end before it does.
class ForgetfulServer {
 public:
  explicit ForgetfulServer(const std::string& path)
      : listener_(listen_unix(path).value()), acceptor_([this] { accept_all(); }) {}
  ~ForgetfulServer() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    acceptor_.join();
    for (std::thread& connection : connections_) connection.join();
  }
  ForgetfulServer(const ForgetfulServer&) = delete;
  ForgetfulServer& operator=(const ForgetfulServer&) = delete;

 private:
  void accept_all() {
    while (true) {
      UniqueFd socket(::accept(listener_.get(), nullptr, nullptr));
      if (!socket.valid()) return;
      connections_.emplace_back([this, wire = std::make_shared<Wire>(make_socket_stream(std::move(socket)))] {
        while (answer(*wire).ok()) {
        }
      });
    }
  }
  Status answer(Wire& wire) {
    VARVE_ASSIGN(const Wire::Head head, wire.receive_head(after_seconds(30)));
    if (head.closed) return Status::cancelled();
    ByteVector data(head.header.data_bytes);
    if (!data.empty()) VARVE_TRY(wire.receive_data(head.header, data, after_seconds(30)));
    WireHeader header = head.header;
    header.flags = WireHeader::kReply;
    return wire.send(header, reply_to(head.header.message), {}, after_seconds(30));
  }
  ByteVector reply_to(uint8_t message) {
    switch (message) {
      case HelloRequest::kMessage.number: return encode_fields(ReplyTo<HelloRequest>(ServerFacts{run_, run_, 4}));
      case OpenRequest::kMessage.number:
      case CreateRequest::kMessage.number:
      case ResumeRequest::kMessage.number:
        return encode_fields(
            Reply<OpenedFile>(OpenedFile{.handle = ++opened_count_, .bytes = 8, .identity = {1, 2, 3}}));
      case PingRequest::kMessage.number:
      case CloseRequest::kMessage.number: return encode_fields(Reply<NoFields>());
      default: break;
    }
    // So that a client who asks for ever fails otherwise, in the end.
    const bool asks_for_ever = ++forgotten_count_ > 1000;
    return encode_fields(asks_for_ever ? Reply<NoFields>(Status::unsupported("asked too often"))
                                       : Reply<NoFields>(Outcome::unknown_handle));
  }

  const UniqueId run_ = UniqueId::random().value();
  std::atomic<uint64_t> opened_count_{0}, forgotten_count_{0};
  const UniqueFd listener_;
  std::vector<std::thread> connections_;  ///< of acceptor_
  std::thread acceptor_;
};

TEST_F(RemoteFiles, ThatAServerDoesNotKnowHoweverOftenItHasOpenedThemAreGivenUp) {
  server_.stop();
  ForgetfulServer forgetful(server_.options.listen.path);
  LinkOptions how = server_.link_options;
  how.take_descriptors = false;
  const auto link = ServerLink::open(server_.options.listen, how).value();
  RemoteFileSystem fs(*link);
  const auto is_given_up = [](const Status& status) {
    EXPECT_EQ(status.code(), StatusCode::io_error) << status.to_string();
    EXPECT_NE(status.message().find("in vain"), std::string_view::npos) << status.to_string();
  };
  const auto old = fs.open_read(path("a")).value();
  ByteVector buffer(4);
  is_given_up(old->read_at(0, buffer).status());
  is_given_up(old->read_at(0, buffer).status());
  is_given_up(fs.create(path("b")).value()->write_at(0, buffer));
  is_given_up(fs.create(path("c")).value()->truncate(0));
  is_given_up(fs.create(path("d")).value()->size().status());
  is_given_up(fs.create(path("e")).value()->read_at(0, buffer).status());
  alignas(kDirectAlignment) static std::byte block[kDirectAlignment];
  const auto ahead = fs.create(path("f"), {.direct = true}).value();
  ASSERT_TRUE(ahead->write_at(0, block).ok());
  is_given_up(ahead->truncate(0));
  is_given_up(ahead->sync());
}

/// Of which the server sends descriptors.
class AttachedFiles : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return join_path(fs_.root(), name); }
  TestServer server_;
  std::unique_ptr<ServerLink> link_ = server_.connect();
  RemoteFileSystem fs_{*link_};
};

TEST_F(AttachedFiles, NeedNoServerOnceTheyAreOpen) {
  ASSERT_TRUE(write_file_durably(fs_, path("old"), as_bytes("text")).ok());
  const auto old = fs_.open_read(path("old")).value();
  const auto fresh = fs_.create(path("new")).value();
  server_.stop();
  ByteVector buffer(10);
  EXPECT_EQ(old->read_at(0, buffer).value(), 4u);
  ASSERT_TRUE(fresh->write_at(0, as_bytes("written")).ok());
  ASSERT_TRUE(fresh->sync().ok());
  EXPECT_EQ(fresh->size().value(), 7u);
  server_.start();
  ASSERT_TRUE(fs_.rename(path("new"), path("renamed")).ok());
  EXPECT_EQ(as_text(*read_file(fs_, path("renamed"), 64_MiB)), "written");
}

TEST_F(AttachedFiles, AreOnlyThoseThatTheReplySpeaksOf) {
  ASSERT_TRUE(write_file_durably(fs_, path("a"), as_bytes("text")).ok());
  const OpenedFile reply = link_->ask(OpenRequest{"a"})->fields;
  ASSERT_TRUE(reply.descriptor && reply.descriptor->valid());
  OpenedFile other = reply;
  ++other.identity.inode;
  EXPECT_EQ(attached_file(other, "a", false), nullptr);
  other = reply;
  other.descriptor = std::make_shared<UniqueFd>(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(attached_file(other, "a", false), nullptr);
  other.descriptor = nullptr;
  EXPECT_EQ(attached_file(other, "a", false), nullptr);
  const auto file = attached_file(reply, "a", false);
  ASSERT_NE(file, nullptr);
  ByteVector buffer(10);
  EXPECT_EQ(file->read_at(0, buffer).value(), 4u);
  EXPECT_FALSE(file->write_at(0, as_bytes("x")).ok()) << "it was opened for reading";
}

TEST_F(AttachedFiles, LeaveNoDescriptorsOpen) {
  ASSERT_TRUE(write_file_durably(fs_, path("a"), as_bytes("text")).ok());
  auto open_descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  ASSERT_TRUE(fs_.open_read(path("a")).ok());
  const auto before = open_descriptors();
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(fs_.open_read(path("a")).ok());
    ASSERT_TRUE(fs_.create(path("new" + std::to_string(i))).ok());
  }
  EXPECT_LE(open_descriptors(), before + 4);
}

}  // namespace
}  // namespace varve
