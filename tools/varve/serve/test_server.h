#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "serve/server.h"
#include "service/remote_file_system.h"

namespace varve {

/// A folder that is gone after the test, with a server for it and a client of that. The server can be stopped and
/// started again.
class TestServer {
 public:
  enum class Kind { unix_socket, tls };
  explicit TestServer(Kind kind = Kind::unix_socket, PathRule rule = is_plain_path) {
    work_ = (std::filesystem::temp_directory_path() / ("varve-test-" + UniqueId::random()->hex())).string();
    std::filesystem::create_directory(work_);
    options.folder = work_ + "/served";
    options.rule = rule;
    options.listen.path = work_ + "/socket";
    if (kind == Kind::tls) {
      options.key_files.all = work_ + "/key";
      EXPECT_TRUE(make_key_file(options.key_files.all).ok());
      options.listen = {.kind = ServerAddress::Kind::tcp, .path = "", .host = "127.0.0.1", .port = 0};
    }
    link_options.key_file = options.key_files.all;
    link_options.reconnect_seconds = 5;
    start();
  }
  ~TestServer() {
    server.reset();
    std::filesystem::remove_all(work_);
  }

  void start() {
    Result<std::unique_ptr<Server>> started = Server::start(options);
    ASSERT_TRUE(started.ok()) << started.status().to_string();
    server = std::move(*started);
    options.listen = server->address();
  }
  void stop() { server.reset(); }

  std::unique_ptr<ServerLink> connect(bool take_descriptors = true) const {
    LinkOptions how = link_options;
    how.take_descriptors = take_descriptors;
    Result<std::unique_ptr<ServerLink>> link = ServerLink::open(options.listen, how);
    EXPECT_TRUE(link.ok()) << link.status().to_string();
    return link.ok() ? std::move(*link) : nullptr;
  }
  const std::string& work() const { return work_; }

  ServerOptions options;
  LinkOptions link_options;
  std::unique_ptr<Server> server;

 private:
  std::string work_;
};

}  // namespace varve
