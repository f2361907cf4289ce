#include "serve/server.h"

#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <chrono>
#include <fstream>
#include <future>
#include <list>
#include <thread>

#include "backend/folder_backend.h"
#include "core/process.h"
#include "format/store_header.h"
#include "hash/score.h"
#include "serve/test_server.h"
#include "service/location.h"
#include "service/socket.h"
#include "store/catalog.h"
#include "store/test_sets.h"

namespace varve {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// A connection over which a test may send what it likes.
class RawClient {
 public:
  explicit RawClient(const TestServer& server) : socket_(connect_unix(server.options.listen.path).value()) {
    const timeval patience{5, 0};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  void send(ByteSpan bytes) const { (void)::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  /// Waits until the server has sent something.
  void receive_some() const {
    std::byte bytes[4096];
    EXPECT_GT(::recv(socket_.get(), bytes, sizeof bytes, 0), 0);
  }
  /// How much the server has sent that has not been received.
  int unread() const {
    int bytes = 0;
    EXPECT_EQ(::ioctl(socket_.get(), FIONREAD, &bytes), 0);
    return bytes;
  }
  /// Asks again and again without taking an answer, until there comes none.
  void ask_until_unanswered(ByteSpan request) const {
    for (int before = -1; before != unread();) {
      before = unread();
      send(request);
      for (int i = 0; i < 400 && unread() == before; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  /// What the server sends until it ends the connection.
  ByteVector receive_all() const {
    ByteVector all;
    std::byte byte{};
    while (::recv(socket_.get(), &byte, 1, 0) == 1) all.push_back(byte);
    return all;
  }
  /// Whether the server ends the connection, whatever it sends before that.
  bool is_ended() const {
    std::byte bytes[4096];
    while (true) {
      const ssize_t got = ::recv(socket_.get(), bytes, sizeof bytes, 0);
      if (got == 0) return true;
      if (got < 0) return errno == ECONNRESET;
    }
  }

 private:
  const UniqueFd socket_;
};

template <class Message>
ByteVector frame(ByteSpan fields, ByteSpan data = {}) {
  WireHeader header;
  header.message = Message::kMessage.number;
  header.request = 1;
  header.fields_bytes = static_cast<uint32_t>(fields.size());
  header.data_bytes = static_cast<uint32_t>(data.size());
  header.fields_crc = crc32c(fields);
  header.data_crc = crc32c(data);
  std::byte raw[kWireHeaderBytes];
  encode_wire_header(header, raw);
  ByteVector bytes(raw, raw + sizeof raw);
  bytes.insert(bytes.end(), fields.begin(), fields.end());
  bytes.insert(bytes.end(), data.begin(), data.end());
  return bytes;
}

ByteVector hello() { return frame<HelloRequest>(encode_fields(HelloRequest{UniqueId::random().value()})); }

/// Has a server begin pushes, which end when a test says so.
class PushesThatWait {
 public:
  explicit PushesThatWait(Server& server) {
    server.store().transfer = [this](TransferDirection, const SetTransfer&, NextLevel::Done done) {
      const MutexLock lock(mutex_);
      begun_.push_back(std::move(done));
      changed_.notify_all();
      return Status();
    };
  }
  /// Waits for one, which ends when the result is called.
  NextLevel::Done next() {
    const MutexLock lock(mutex_);
    while (begun_.empty()) changed_.wait(mutex_);
    NextLevel::Done done = std::move(begun_.front());
    begun_.pop_front();
    return done;
  }
  bool has_more() {
    const MutexLock lock(mutex_);
    return !begun_.empty();
  }

 private:
  Mutex mutex_;
  ConditionVariable changed_;
  std::list<NextLevel::Done> begun_ VARVE_GUARDED_BY(mutex_);
};

TEST(Server, EndsConnectionsThatSendGarbage) {
  TestServer server;
  const ByteVector fields(UniqueId().bytes.size());
  ByteVector wrong_crc = hello();
  wrong_crc.back() ^= std::byte{1};
  for (const ByteVector& bytes : {ByteVector(4000, std::byte{'G'}), wrong_crc, frame<ReadRequest>(fields),
                                  frame<HelloRequest>(ByteVector(3)), frame<WriteRequest>(fields, ByteVector(1000))}) {
    RawClient client(server);
    client.send(bytes);
    if (bytes.size() < 200) client.send(ByteVector(200));
    EXPECT_TRUE(client.is_ended());
  }
  EXPECT_NE(server.connect(), nullptr);
}

TEST(Server, TellsAClientOfAnotherVersionWhichOneItSpeaks) {
  TestServer server;
  ByteVector other = hello();
  other[4] = std::byte{kWireVersion + 1};
  store_le(other.data() + kWireHeaderBytes - 4, crc32c(ByteSpan(other).first(kWireHeaderBytes - 4)));
  RawClient client(server);
  client.send(other);
  ByteVector answer = client.receive_all();
  ASSERT_GT(answer.size(), kWireHeaderBytes);
  const auto header = decode_wire_header(reinterpret_cast<std::byte(&)[kWireHeaderBytes]>(*answer.data()));
  ASSERT_TRUE(header.ok()) << header.status().to_string();
  EXPECT_TRUE(header->has(WireHeader::kReply));
  const auto reply = decode_fields<ReplyTo<HelloRequest>>(ByteSpan(answer).subspan(kWireHeaderBytes));
  ASSERT_TRUE(reply.ok()) << reply.status().to_string();
  EXPECT_EQ(reply->status.code(), StatusCode::unsupported);
}

TEST(Server, DoesNotWaitForThoseWhoSayNothing) {
  TestServer server;
  server.stop();
  server.options.limits = {.hello_seconds = 0.2, .frame_seconds = 0.2};
  server.start();
  RawClient silent(server), half(server);
  half.send(ByteSpan(hello()).first(20));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(silent.is_ended());
  EXPECT_TRUE(half.is_ended());
  EXPECT_LT(seconds_since(begin), 3);
}

TEST(Server, DoesNotWaitForThoseWhoSayAnythingButHello) {
  TestServer server;
  server.stop();
  server.options.limits.hello_seconds = 0.3;
  server.start();
  RawClient client(server);
  std::atomic<bool> ended{false};
  const auto begin = std::chrono::steady_clock::now();
  std::thread sender([&] {
    while (!ended && seconds_since(begin) < 5) {
      client.send(frame<PingRequest>({}));
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  });
  EXPECT_TRUE(client.is_ended());
  EXPECT_LT(seconds_since(begin), 3);
  ended = true;
  sender.join();
}

TEST(Server, EndsConnectionsThatStopInTheMiddleOfAMessage) {
  TestServer server;
  server.stop();
  server.options.limits = {.hello_seconds = 5, .frame_seconds = 0.2};
  server.start();
  RawClient client(server);
  client.send(hello());
  std::this_thread::sleep_for(std::chrono::milliseconds(400));  // who is idle may stay …
  client.send(ByteSpan(frame<PingRequest>({})).first(7));       // … but not with half a message
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(client.is_ended());
  EXPECT_LT(seconds_since(begin), 4);
}

TEST(Server, DoesNotCountWhatARequestTakesAsTheTimeInWhichItCame) {
  TestServer server;
  server.stop();
  server.options.limits = {.hello_seconds = 5, .frame_seconds = 1.5};
  server.start();
  PushesThatWait pushes(*server.server);
  RawClient client(server);
  client.send(hello());
  client.receive_some();
  const ByteVector push = frame<PushRequest>(encode_fields(PushRequest()));
  client.send(ByteSpan(push).first(7));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  client.send(ByteSpan(push).subspan(7));
  const NextLevel::Done done = pushes.next();
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));  // the server looks after clients meanwhile
  done(TransferNumbers());
  client.receive_some();
}

TEST(Server, LetsClientsBeIdle) {
  TestServer server;
  server.stop();
  server.options.limits = {.hello_seconds = 0.1, .frame_seconds = 0.1};
  server.start();
  const auto link = server.connect();
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  const auto reply = link->ask(PingRequest());
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->outcome, Outcome::done);
}

TEST(Server, TurnsAwayMoreConnectionsThanItTakes) {
  TestServer server;
  server.stop();
  server.options.connections_max = 2;
  server.options.idle_seconds = 60;
  server.start();
  std::optional<RawClient> first(server), second(server);
  for (const RawClient* client : {&*first, &*second}) {
    client->send(hello());
    client->receive_some();
  }
  RawClient third(server);
  third.send(hello());
  EXPECT_TRUE(third.is_ended());
  LinkOptions impatient = server.link_options;
  impatient.room_seconds = 0.1;
  EXPECT_EQ(ServerLink::open(server.options.listen, impatient).status().code(), StatusCode::busy);
  std::thread leaver([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    first.reset();
  });
  EXPECT_TRUE(ServerLink::open(server.options.listen, server.link_options).ok());  // which waits for a place
  leaver.join();
}

TEST(Server, ServesMoreClientsInTurnThanItTakesConnections) {
  TestServer server;
  server.stop();
  server.options.connections_max = 2;
  server.options.idle_seconds = 0.02;
  server.start();
  std::vector<std::unique_ptr<ServerLink>> links;
  std::vector<std::unique_ptr<File>> files;
  for (int i = 0; i < 6; ++i) {
    links.push_back(server.connect());
    ASSERT_NE(links.back(), nullptr) << i;
    RemoteFileSystem fs(*links.back());
    auto file = fs.create(fs.root() + "/" + std::to_string(i));
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    files.push_back(std::move(*file));
  }
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < files.size(); ++i) {
      EXPECT_TRUE(files[i]->write_at(static_cast<uint64_t>(round), as_bytes("x")).ok()) << i;
      EXPECT_TRUE(links[i]->ask(PingRequest()).ok()) << i;
    }
  }
  for (const auto& file : files) EXPECT_TRUE(file->sync().ok());
}

TEST(Server, LetsNoClientWaitBehindThoseWhoSayNothing) {
  TestServer server;
  server.stop();
  server.options.connections_max = 2;
  server.options.strangers_max = 4;
  server.start();
  const auto before = server.connect();
  ASSERT_NE(before, nullptr);
  std::list<RawClient> silent;
  for (int i = 0; i < 20; ++i) silent.emplace_back(server);
  EXPECT_TRUE(silent.front().is_ended()) << "the oldest makes room";
  EXPECT_NE(server.connect(), nullptr);
  EXPECT_TRUE(before->ask(PingRequest()).ok()) << "who has said hello stays";
}

size_t entries(const char* folder) {
  const std::filesystem::directory_iterator all(folder);
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

TEST(Server, KeepsNothingOfConnectionsThatHaveEnded) {
  TestServer server;
  const size_t descriptors = entries("/proc/self/fd");
  {
    std::list<RawClient> clients;
    for (int i = 0; i < 20; ++i) clients.emplace_back(server).send(hello());
    for (int i = 0; i < 1000 && entries("/proc/self/fd") < descriptors + 40; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_GE(entries("/proc/self/fd"), descriptors + 40);
  }
  // Without another client that would wake the server.
  const auto begin = std::chrono::steady_clock::now();
  auto all_gone = [&] { return entries("/proc/self/fd") <= descriptors; };
  while (!all_gone() && seconds_since(begin) < 10) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(all_gone());
}

std::unique_ptr<ServerConnection> open_connection(const TestServer& server) {
  Result<UniqueFd> socket = connect_unix(server.options.listen.path);
  if (!socket.ok()) return nullptr;
  auto connection =
      ServerConnection::open(make_socket_stream(*std::move(socket)), UniqueId::random().value(), server.link_options);
  return connection.ok() ? *std::move(connection) : nullptr;
}

TEST(Server, HoldsManyConnectionsWithFewThreads) {
  raise_descriptor_limit();
  const size_t count = descriptors_for(2000, 4);
  TestServer server;
  server.stop();
  server.options.threads_max = 6;
  const size_t threads = entries("/proc/self/task");
  server.start();
  std::vector<std::unique_ptr<ServerConnection>> connections;
  for (size_t i = 0; i < count; ++i) {
    connections.push_back(open_connection(server));
    ASSERT_NE(connections.back(), nullptr) << i;
  }
  for (int round = 0; round < 2; ++round) {
    for (const auto& connection : connections) ASSERT_TRUE(connection->ping().ok());
  }
  constexpr size_t others = 2;  // the one that accepts, the one that opens the index
  EXPECT_LE(entries("/proc/self/task"), threads + server.options.threads_max + others);
}

TEST(Server, ServesMoreBusyClientsThanItHasThreads) {
  TestServer server;
  server.stop();
  server.options.threads_max = 2;
  server.start();
  std::vector<std::thread> clients;
  for (int i = 0; i < 6; ++i) {
    clients.emplace_back([&] {
      const auto connection = open_connection(server);
      ASSERT_NE(connection, nullptr);
      for (int request = 0; request < 300; ++request) ASSERT_TRUE(connection->ping().ok()) << request;
    });
  }
  for (std::thread& client : clients) client.join();
}

TEST(Server, AnswersRequestsThatCameTogetherOneAfterAnother) {
  TestServer server;
  server.stop();
  server.options.threads_max = 1;
  server.start();
  const auto connection = open_connection(server);
  ASSERT_NE(connection, nullptr);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(connection->send(PingRequest()).ok());
  for (int i = 0; i < 100; ++i) {
    size_t data_bytes = 0;
    ASSERT_TRUE(connection->receive<PingRequest>({}, data_bytes).ok()) << i;
  }
}

TEST(Server, GoesOnWhenAllItsThreadsMetHalfAMessage) {
  TestServer server;
  server.stop();
  server.options.threads_max = 2;
  server.options.limits = {.hello_seconds = 5, .frame_seconds = 0.2};
  server.start();
  const auto before = open_connection(server);
  ASSERT_NE(before, nullptr);
  std::list<RawClient> halves;
  for (int i = 0; i < 6; ++i) {
    halves.emplace_back(server).send(hello());
    halves.back().send(ByteSpan(frame<PingRequest>({})).first(7));
  }
  EXPECT_TRUE(before->ping().ok());
  for (const RawClient& half : halves) EXPECT_TRUE(half.is_ended());
}

TEST(Server, HasNoThreadForMessagesThatHaveComeInPart) {
  TestServer server;
  server.stop();
  server.options.threads_max = 2;
  server.start();
  server.link_options.answer_seconds = 5;
  const auto before = open_connection(server);
  ASSERT_NE(before, nullptr);
  const ByteVector ping = frame<PingRequest>({});
  std::list<RawClient> slow;
  for (size_t i = 0; i < 6; ++i) {
    slow.emplace_back(server).send(hello());
    slow.back().receive_some();
    slow.back().send(ByteSpan(ping).first(1 + 6 * i));
  }
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(before->ping().ok());
  for (size_t i = 0; RawClient & client : slow) {
    client.send(ByteSpan(ping).subspan(1 + 6 * i++));
    client.receive_some();
  }
}

TEST(Server, LeavesThreadsToOthersWhereTheDataOfMessagesDoNotCome) {
  TestServer server;
  server.stop();
  server.options.threads_max = 8;
  server.start();
  server.link_options.answer_seconds = 5;
  const auto before = open_connection(server);
  ASSERT_NE(before, nullptr);
  const FindRequest find{1};
  ByteVector without_data = frame<FindRequest>(encode_fields(find), ByteVector(8));
  without_data.resize(without_data.size() - 1);
  std::list<RawClient> silent;
  for (int i = 0; i < 12; ++i) {
    silent.emplace_back(server).send(hello());
    silent.back().receive_some();
    silent.back().send(without_data);
  }
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(before->ping().ok());
  silent.clear();
  const auto found = before->ask(find, {.data = ByteVector(8)});
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(found->outcome, Outcome::done) << "its turn comes";
}

/// A store over a server, as clients have it for long, and the server's folder.
struct AStoreOfAServer : testing::Test {
  void reach() {
    place = open_location("unix:" + server.options.listen.path, {.reach = {}, .reconnect_seconds = 0.5}).value();
    store = open_store(*place).value();
  }
  /// The server's machine is started anew, and `other` lies where the folder was; back: as before.
  void exchange_folders() {
    server.stop();
    std::filesystem::rename(folder, folder + ".aside");
    std::filesystem::rename(other, folder);
    std::filesystem::rename(folder + ".aside", other);
    server.start();
  }

  TestServer server;
  const std::string folder = server.options.folder, other = folder + ".other";
  std::unique_ptr<StorePlace> place;
  std::unique_ptr<Store> store;
};

TEST_F(AStoreOfAServer, IsNoOtherOneThatItServesWhenItIsStartedAnew) {
  ASSERT_TRUE(Store::create(posix_file_system(), folder).ok());
  ASSERT_TRUE(Store::create(posix_file_system(), other).ok());
  reach();
  ASSERT_TRUE(test::save_numbers(*store, {"job", 1}, {1, 2}).ok());
  exchange_folders();
  const Status refused = WriterLease::acquire(*store).status();
  EXPECT_EQ(refused.code(), StatusCode::io_error) << refused.to_string();
  EXPECT_EQ(Catalog(*store).read({"job", 1}).status().code(), StatusCode::io_error);
  exchange_folders();
  EXPECT_TRUE(test::save_numbers(*store, {"job", 3}, {2, 3}).ok());
  EXPECT_EQ(Catalog(*store).steps("job").value(), (std::vector<uint64_t>{1, 3}));
  EXPECT_TRUE(Catalog(*Store::open(posix_file_system(), other).value()).steps("job").value().empty());
}

TEST_F(AStoreOfAServer, IsNotThereWhereItsFolderIsEmpty) {
  ASSERT_TRUE(Store::create(posix_file_system(), folder).ok());
  reach();
  std::filesystem::create_directory(other);
  exchange_folders();
  EXPECT_EQ(WriterLease::acquire(*store).status().code(), StatusCode::io_error);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  exchange_folders();
  EXPECT_TRUE(test::save_numbers(*store, {"job", 1}, {1}).ok());
}

TEST_F(AStoreOfAServer, IsNoOtherPlaceOfItself) {
  FolderBackend one(posix_file_system(), folder), two(posix_file_system(), other);
  ASSERT_TRUE(create_spread_store({&one, &two}).ok());
  const ByteVector header = read_file(posix_file_system(), folder + "/varve.store", 4096).value();
  server.link_options.reconnect_seconds = 0.5;
  const auto link = server.connect();
  link->expect({.store = decode_store_header(header, folder)->store, .position = 0});
  EXPECT_TRUE(link->ask(StatRequest{"sets"}).ok());
  exchange_folders();
  EXPECT_EQ(link->ask(StatRequest{"sets"}).status().code(), StatusCode::io_error);
  exchange_folders();
  EXPECT_TRUE(link->ask(StatRequest{"sets"}).ok());
}

TEST(Server, LeavesThreadsToOthersWhereRepliesAreNotTaken) {
  TestServer server;
  server.stop();
  server.options.threads_max = 8;
  server.start();
  server.link_options.answer_seconds = 5;
  const auto before = open_connection(server);
  ASSERT_NE(before, nullptr);
  ASSERT_TRUE(posix_file_system().create(server.options.folder + "/a").value()->truncate(1_MiB).ok());
  std::vector<std::unique_ptr<ServerConnection>> silent;
  for (int i = 0; i < 12; ++i) {
    silent.push_back(open_connection(server));
    ASSERT_NE(silent.back(), nullptr);
    const auto opened = silent.back()->ask(OpenRequest{"a"});
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    for (int request = 0; request < 12; ++request)
      ASSERT_TRUE(silent.back()->send(ReadRequest{opened->fields.handle, {{0, 1_MiB}}}).ok());
  }
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(before->ping().ok());
}

TEST(Server, TakesATurnBackFromWhoDoesNotTakeItsReplies) {
  TestServer server;
  server.stop();
  server.options.threads_max = 2;  // of which those who come over the socket wait with one at a time
  server.options.limits = {.hello_seconds = 5, .frame_seconds = 3};
  server.start();
  server.link_options.answer_seconds = 20;
  const auto other = open_connection(server);
  ASSERT_NE(other, nullptr);
  const FindRequest find{1};
  std::optional<RawClient> first(server);
  RawClient silent(server);
  for (const RawClient* client : {&*first, &silent}) {
    client->send(hello());
    client->receive_some();
  }
  ByteVector without_data = frame<FindRequest>(encode_fields(find), ByteVector(8));
  without_data.resize(without_data.size() - 1);
  first->send(without_data);
  silent.ask_until_unanswered(frame<PingRequest>({}));
  first.reset();  // whose turn goes to the one that wakes nobody
  const auto found = other->ask(find, {.data = ByteVector(8)});
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(found->outcome, Outcome::done);
  EXPECT_TRUE(silent.is_ended());
}

/// As where this process may have so many files open.
class FewDescriptors {
 public:
  explicit FewDescriptors(rlim_t count) {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    rlimit few = before_;
    few.rlim_cur = std::min(count, before_.rlim_cur);
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit before_{};
};

TEST(Server, GivesTheFilesThatItsConnectionsDoNotNeedToClients) {
  const FewDescriptors few(512);
  TestServer server;
  server.stop();
  server.start();
  EXPECT_EQ(server.server->connections_max(), 384u);
  ASSERT_TRUE(posix_file_system().create(server.options.folder + "/a").ok());
  const auto connection = open_connection(server);
  ASSERT_NE(connection, nullptr);
  size_t opened = 0;
  StatusCode last = StatusCode::ok;
  while (last == StatusCode::ok && opened < 512) {
    const auto reply = connection->ask(OpenRequest{"a"});
    ASSERT_TRUE(reply.ok()) << reply.status().to_string();
    last = reply->status.code();
    if (last == StatusCode::ok) ++opened;
  }
  EXPECT_EQ(last, StatusCode::resource_limit);
  EXPECT_EQ(opened, 288u) << "three quarters of what is left beside the quarter for connections";
  EXPECT_NE(open_connection(server), nullptr);
}

TEST(Server, ServesOnlyItsUserAndRoot) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  TestServer server;
  ASSERT_EQ(::chmod(server.work().c_str(), 0755), 0);
  ASSERT_EQ(::chmod(server.options.listen.path.c_str(), 0777), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setresgid(65534, 65534, 65534) != 0 || ::setresuid(65534, 65534, 65534) != 0) ::_exit(2);
    const Result<UniqueFd> socket = connect_unix(server.options.listen.path);
    if (!socket.ok()) ::_exit(3);
    std::byte byte{};
    ::_exit(::recv(socket->get(), &byte, 1, 0) == 0 ? 0 : 4);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(Server, HasItsFolderAlone) {
  TestServer server;
  ServerOptions other = server.options;
  other.listen.path += "2";
  EXPECT_EQ(Server::start(other).status().code(), StatusCode::busy);
  other.folder += "2";
  other.listen.path = server.options.listen.path;
  EXPECT_EQ(Server::start(other).status().code(), StatusCode::busy);
}

TEST(Server, TakesTheSocketOfOneThatIsGone) {
  TestServer server;
  server.stop();
  const UniqueFd left(::socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, server.options.listen.path.c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(left.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  server.start();
  EXPECT_NE(server.connect(), nullptr);
  server.stop();
  std::ofstream(server.options.listen.path) << "somebody's file";
  EXPECT_EQ(Server::start(server.options).status().code(), StatusCode::already_exists);
}

TEST(Server, RefusesTcpWithoutAKeyOnBothSides) {
  TestServer server;
  ServerOptions tcp = server.options;
  tcp.folder += "2";
  tcp.listen = {.kind = ServerAddress::Kind::tcp, .path = "", .host = "127.0.0.1", .port = 0};
  EXPECT_EQ(Server::start(tcp).status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(ServerLink::open(tcp.listen, {}).status().code(), StatusCode::invalid_argument);
}

#ifdef VARVE_HAVE_TLS
TEST(Server, KeepsTheSocketOfAFailedHandshakeUntilTheConnectionIsForgotten) {
  std::atomic<int> socket{-1};
  std::promise<bool> is_open;
  TestServer server(TestServer::Kind::tls);
  server.stop();
  server.options.log = [&](const std::string& line) {
    if (!line.starts_with("a connection ended")) return;
    std::byte bytes[4096];
    ssize_t got = 0;
    while ((got = ::recv(socket, bytes, sizeof bytes, MSG_DONTWAIT)) > 0) {
    }
    is_open.set_value(got < 0 && errno == EAGAIN);
  };
  server.start();
  const UniqueFd stranger = connect_tcp(server.options.listen, after_seconds(5)).value();
  socket = stranger.get();
  const std::string request = "GET / HTTP/1.1\r\n\r\n";
  ASSERT_EQ(::send(stranger.get(), request.data(), request.size(), MSG_NOSIGNAL), std::ssize(request));
  EXPECT_TRUE(is_open.get_future().get()) << "its number may be another connection's by now";
  EXPECT_NE(server.connect(), nullptr);
}

TEST(Server, LetsClientsOverTcpWaitForAPlace) {
  TestServer server(TestServer::Kind::tls);
  server.stop();
  server.options.connections_max = 1;
  server.options.strangers_max = 1;
  server.options.idle_seconds = 60;
  server.start();
  auto first = server.connect();
  LinkOptions impatient = server.link_options;
  impatient.room_seconds = 0.1;
  EXPECT_EQ(ServerLink::open(server.options.listen, impatient).status().code(), StatusCode::busy);
  std::thread leaver([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    first.reset();
  });
  EXPECT_NE(server.connect(), nullptr);
  leaver.join();
}

TEST(Server, GivesNothingToWhoLacksTheKey) {
  TestServer server(TestServer::Kind::tls);
  LinkOptions other = server.link_options;
  other.key_file = server.work() + "/other";
  ASSERT_TRUE(make_key_file(other.key_file).ok());
  const Status refused = ServerLink::open(server.options.listen, other).status();
  EXPECT_EQ(refused.code(), StatusCode::permission_denied) << refused.to_string();
  EXPECT_NE(server.connect(), nullptr);
}

TEST(Server, GivesNothingToWhoDoesNotSpeakTls) {
  TestServer server(TestServer::Kind::tls);
  UniqueFd socket = connect_tcp(server.options.listen, after_seconds(5)).value();
  auto stream = make_socket_stream(std::move(socket));
  const ByteVector bytes = hello();
  const std::array<ByteSpan, 1> parts{ByteSpan(bytes)};
  ASSERT_TRUE(stream->write(parts, after_seconds(5)).ok());
  ByteVector answer(1000);
  const Result<size_t> got = stream->read_some(answer, after_seconds(5));
  const bool alert_of_tls = got.ok() && *got > 0 && answer[0] == std::byte{21};
  EXPECT_TRUE(!got.ok() || *got == 0 || alert_of_tls);
  EXPECT_NE(server.connect(), nullptr);
}

TEST(Server, RefusesAKeyThatOthersCanRead) {
  TestServer server(TestServer::Kind::tls);
  ASSERT_EQ(::chmod(server.options.key_files.all.c_str(), 0644), 0);
  EXPECT_EQ(ServerLink::open(server.options.listen, server.link_options).status().code(),
            StatusCode::permission_denied);
  server.stop();
  EXPECT_EQ(Server::start(server.options).status().code(), StatusCode::permission_denied);
}
#endif

/// With the token and the flag that a test wants.
template <class Message>
ReplyTo<Message> ask_once(ServerLink& link, const Message& request, bool again) {
  ReplyTo<Message> reply;
  EXPECT_TRUE(link.with_connection([&](ServerConnection& connection, bool) -> Status {
                    VARVE_ASSIGN(reply, connection.ask(request, {.again = again}));
                    return {};
                  })
                  .ok());
  return reply;
}

TEST(Server, DoesNotRepeatWhatItHasDone) {
  TestServer server;
  const auto link = server.connect();
  RemoteFileSystem fs(*link);
  ASSERT_TRUE(write_file_durably(fs, fs.root() + "/a", as_bytes("text")).ok());
  RenameRequest rename{.token = UniqueId::random().value(), .path = "a", .to = "b"};
  auto ask = [&](bool again) { return ask_once(*link, rename, again).outcome; };
  EXPECT_EQ(ask(false), Outcome::done);
  EXPECT_EQ(ask(true), Outcome::done);  // known by its token
  rename.token = UniqueId::random().value();
  EXPECT_EQ(ask(true), Outcome::cannot_tell);  // another one, of a file whose identity is not known
}

TEST(Server, TakesNoSecondSyncOfAFolderForTheSuccessOfOneThatFailed) {
  TestServer server;
  const auto link = server.connect();
  server.server->store().syncs.note_failure("", Status::io_error("no sync"));  // and the answer is lost
  auto sync = [&](bool again) { return ask_once(*link, SyncDirectoryRequest(), again).status.code(); };
  EXPECT_EQ(sync(true), StatusCode::io_error);
  EXPECT_EQ(sync(true), StatusCode::io_error);
  EXPECT_EQ(sync(false), StatusCode::ok) << "of what has been changed since";
  EXPECT_EQ(sync(true), StatusCode::io_error) << "whose sync that was, nobody knows";
}

TEST(Server, KnowsARenamedFileAgainAfterARestart) {
  TestServer server;
  const auto link = server.connect();
  RemoteFileSystem fs(*link);
  ASSERT_TRUE(write_file_durably(fs, fs.root() + "/a", as_bytes("text")).ok());
  const FoundFile found = link->ask(StatRequest{"a"})->fields;
  if (!found.identity.certain()) GTEST_SKIP() << "the file system does not say when files were made";
  // Renamed by a server that is gone, without an answer.
  std::filesystem::rename(server.options.folder + "/a", server.options.folder + "/b");
  auto ask_again = [&](const FileIdentity& identity) {
    return ask_once(
        *link, RenameRequest{.token = UniqueId::random().value(), .path = "a", .to = "b", .identity = identity}, true);
  };
  EXPECT_EQ(ask_again(found.identity).outcome, Outcome::done);
  FileIdentity another = found.identity;
  ++another.born_ns;
  EXPECT_EQ(ask_again(another).outcome, Outcome::failed);
  another.born_ns = 0;
  EXPECT_EQ(ask_again(another).outcome, Outcome::cannot_tell);
  std::ofstream(server.options.folder + "/a") << "another file";
  EXPECT_EQ(ask_again(found.identity).status.code(), StatusCode::already_exists);
}

TEST(Server, LetsNobodyWriteToAFileThatAnotherConnectionHasTakenOver) {
  TestServer server;
  const auto link = server.connect();
  const UniqueId writer = UniqueId::random().value();
  auto first = link->take_own().value();
  const auto created = first->ask(CreateRequest{writer, "a"}).value();
  ASSERT_EQ(created.outcome, Outcome::done);
  auto second = link->take_own().value();
  const auto resumed = second->ask(ResumeRequest{writer, "a", false, created.fields.identity}).value();
  ASSERT_EQ(resumed.outcome, Outcome::done);
  EXPECT_EQ(first->ask(WriteRequest{created.fields.handle}, {.data = as_bytes("late")})->outcome,
            Outcome::unknown_handle);
  EXPECT_EQ(second->ask(WriteRequest{resumed.fields.handle}, {.data = as_bytes("text")})->outcome, Outcome::done);
}

TEST(Server, GoesOnWhenARequestRunsOutOfMemory) {
  TestServer server;
  server.stop();
  std::atomic<int> told{0};
  server.options.log = [&](const std::string&) {
    ++told;
    throw std::bad_alloc();  // as where there is no memory to say so
  };
  server.start();
  std::atomic<int> tries{0};
  server.server->store().transfer = [&](TransferDirection, const SetTransfer&, const NextLevel::Done& done) {
    if (++tries == 1) throw std::bad_alloc();
    done(TransferNumbers());
    return Status();
  };
  const auto link = server.connect();
  const auto other = server.connect();
  const auto pushed = link->ask(PushRequest());  // which repeats it over another connection
  ASSERT_TRUE(pushed.ok()) << pushed.status().to_string();
  EXPECT_EQ(pushed->outcome, Outcome::done);
  EXPECT_EQ(tries, 2);
  EXPECT_GE(told, 1);
  EXPECT_TRUE(other->ask(PingRequest()).ok());
}

TEST(Server, KeepsNoThreadForAPushHoweverManyConnectionsWaitForIt) {
  TestServer server;
  server.stop();
  server.options.strangers_max = 1;
  server.options.threads_max = 2;
  server.start();
  PushesThatWait pushes(*server.server);
  const auto link = server.connect();
  const PushRequest push{.token = UniqueId::random().value()};
  std::vector<std::unique_ptr<ServerConnection>> waiting;
  for (int i = 0; i < 4; ++i) {
    waiting.push_back(link->take_own().value());
    ASSERT_TRUE(waiting.back()->send(push).ok());
  }
  const NextLevel::Done done = pushes.next();
  EXPECT_TRUE(server.connect()->ask(PingRequest()).ok());
  waiting.pop_back();  // who goes away does not end it
  done(TransferNumbers{.sent_packs = 7});
  waiting.push_back(link->take_own().value());
  ASSERT_TRUE(waiting.back()->send(push).ok());
  for (const auto& connection : waiting) {
    size_t data_bytes = 0;
    const auto reply = connection->receive<PushRequest>({}, data_bytes);
    ASSERT_TRUE(reply.ok()) << reply.status().to_string();
    EXPECT_EQ(reply->outcome, Outcome::done);
    EXPECT_EQ(reply->fields.sent_packs, 7u);
  }
  EXPECT_FALSE(pushes.has_more()) << "it is carried out once";
}

TEST(Server, StopsWhileAPushIsAtWork) {
  TestServer server;
  server.stop();
  server.options.stop_seconds = 0.1;
  server.start();
  PushesThatWait pushes(*server.server);
  const auto connection = server.connect()->take_own().value();
  ASSERT_TRUE(connection->send(PushRequest()).ok());
  pushes.next();
  const auto begin = std::chrono::steady_clock::now();
  server.stop();
  EXPECT_LT(seconds_since(begin), 3);
}

TEST(Server, StopsWhileClientsAreConnected) {
  TestServer server;
  const auto link = server.connect();
  const auto begin = std::chrono::steady_clock::now();
  server.stop();
  EXPECT_LT(seconds_since(begin), 3);
}

/// A server that answers every connection with the same bytes.
class HostileServer {
 public:
  HostileServer(const std::string& path, ByteVector answer) : listener_(listen_unix(path).value()) {
    thread_ = std::thread([this, answer = std::move(answer)] {
      while (true) {
        const UniqueFd socket(::accept(listener_.get(), nullptr, nullptr));
        if (!socket.valid()) return;
        ++connections;
        std::byte request[4096];
        (void)::recv(socket.get(), request, sizeof request, 0);
        (void)::send(socket.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
        while (stuck && ::recv(socket.get(), request, sizeof request, 0) > 0) {
        }
      }
    });
  }
  ~HostileServer() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  std::atomic<bool> stuck{false};
  std::atomic<int> connections{0};

 private:
  const UniqueFd listener_;
  std::thread thread_;
};

/// What comes of a client's first words to the server at a Unix socket.
Status opening_of(const std::string& path, const LinkOptions& options = {}) {
  return ServerLink::open({.kind = ServerAddress::Kind::unix_socket, .path = path, .host = "", .port = 0}, options)
      .status();
}

TEST(Client, LosesNoConnectionToARequestThatRunsOutOfMemory) {
  TestServer server;
  server.link_options.connections_max = 1;
  const auto link = server.connect();
  const Status failed = link->with_connection([](ServerConnection&, bool) -> Status { throw std::bad_alloc(); });
  EXPECT_EQ(failed.code(), StatusCode::resource_limit);
  EXPECT_TRUE(link->ask(PingRequest()).ok());
}

TEST(Client, RefusesWhatMakesNoSense) {
  TestServer place;
  const std::string path = place.work() + "/hostile";
  const ByteVector fields = encode_fields(ReplyTo<HelloRequest>());
  auto answer = [&](uint8_t flags, uint64_t number, ByteSpan data) {
    ByteVector bytes = frame<HelloRequest>(fields, data);
    WireHeader header = decode_wire_header(reinterpret_cast<std::byte(&)[kWireHeaderBytes]>(*bytes.data())).value();
    header.flags = flags;
    header.request = number;
    encode_wire_header(header, reinterpret_cast<std::byte(&)[kWireHeaderBytes]>(*bytes.data()));
    return bytes;
  };
  for (const ByteVector& bytes :
       {ByteVector(100, std::byte{'x'}), answer(0, 1, {}), answer(WireHeader::kReply, 2, {}),
        answer(WireHeader::kReply, 1, ByteVector(5000)), answer(WireHeader::kReply | WireHeader::kMore, 1, {}),
        answer(WireHeader::kReply | WireHeader::kMore, 1, ByteVector(9))}) {
    HostileServer hostile(path, bytes);
    const Status refused = opening_of(path);
    EXPECT_EQ(refused.code(), StatusCode::corrupt) << refused.to_string();
  }
}

TEST(Client, SaysThatAServerHasAnotherVersion) {
  TestServer place;
  const std::string path = place.work() + "/hostile";
  ByteVector other = hello();
  other[4] = std::byte{kWireVersion + 1};
  store_le(other.data() + kWireHeaderBytes - 4, crc32c(ByteSpan(other).first(kWireHeaderBytes - 4)));
  HostileServer server(path, other);
  const Status refused = opening_of(path);
  EXPECT_EQ(refused.code(), StatusCode::unsupported) << refused.to_string();
}

TEST(Client, TriesAgainWhenItsConnectionIsClosedBeforeHelloIsAnswered) {
  TestServer place;
  const std::string path = place.work() + "/hostile";
  HostileServer hostile(path, {});
  LinkOptions impatient;
  impatient.room_seconds = 2;
  const Status refused = opening_of(path, impatient);
  EXPECT_EQ(refused.code(), StatusCode::busy) << refused.to_string();
  EXPECT_GT(hostile.connections, 2);
}

TEST(Client, HasNoMoreConnectionsForRequestsThanTheServerTakes) {
  TestServer server;
  server.stop();
  server.options.connections_max = 2;
  server.start();
  const auto link = server.connect();
  ASSERT_NE(link, nullptr);
  std::atomic<int> at_once{0}, at_once_max{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      EXPECT_TRUE(link->with_connection([&](ServerConnection& connection, bool again) -> Status {
                        EXPECT_FALSE(again);
                        const int now = ++at_once;
                        for (int max = at_once_max; now > max && !at_once_max.compare_exchange_weak(max, now);)
                          continue;
                        std::this_thread::sleep_for(std::chrono::milliseconds(20));
                        const Status pinged = connection.ping();
                        --at_once;
                        return pinged;
                      })
                      .ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(at_once_max, 2);
}

TEST(Client, DoesNotWaitForeverForAServerThatIsStuck) {
  TestServer place;
  const std::string path = place.work() + "/hostile";
  HostileServer hostile(path, {});
  hostile.stuck = true;
  LinkOptions impatient;
  impatient.connect_seconds = impatient.room_seconds = 0.3;
  const auto begin = std::chrono::steady_clock::now();
  const Status refused = opening_of(path, impatient);
  EXPECT_EQ(refused.code(), StatusCode::io_error) << refused.to_string();
  EXPECT_LT(seconds_since(begin), 5);
}

}  // namespace
}  // namespace varve
