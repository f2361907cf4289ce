#include "service/remote_file_system.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
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
