#include "runtime/served_store.h"

#include <gtest/gtest.h>

#include "serve/server.h"

namespace varve::test {

struct ServedStore::Running {
  ServerOptions options;
  std::unique_ptr<Server> server;
};

ServedStore::ServedStore(const std::string& address, const std::string& folder, const std::string& key_file)
    : running_(new Running) {
  ServerOptions& options = running_->options;
  options.listen = ServerAddress::parse(address).value();
  options.folder = folder;
  options.key_files.all = key_file;
  options.stop_seconds = 0;
  start();
}

ServedStore::~ServedStore() = default;

std::string ServedStore::address() const { return running_->options.listen.to_string(); }

void ServedStore::stop() { running_->server.reset(); }

void ServedStore::start() {
  Result<std::unique_ptr<Server>> started = Server::start(running_->options);
  ASSERT_TRUE(started.ok()) << started.status().to_string();
  running_->server = std::move(*started);
  running_->options.listen = running_->server->address();
}

}  // namespace varve::test
