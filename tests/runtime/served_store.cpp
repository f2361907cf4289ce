#include "runtime/served_store.h"

#include <gtest/gtest.h>

#include "service/server.h"

namespace varve::test {

struct ServedStore::Running {
  std::unique_ptr<Server> server;
};

ServedStore::ServedStore(const std::string& socket, const std::string& folder) : running_(new Running) {
  ServerOptions options;
  options.listen = ServerAddress::parse("unix:" + socket).value();
  options.folder = folder;
  Result<std::unique_ptr<Server>> started = Server::start(options);
  EXPECT_TRUE(started.ok()) << started.status().to_string();
  if (started.ok()) running_->server = std::move(*started);
}

ServedStore::~ServedStore() = default;

}  // namespace varve::test
