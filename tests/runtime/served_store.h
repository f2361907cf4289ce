#pragma once

#include <memory>
#include <string>

namespace varve::test {

/// A server of this process for the store in a folder, at a Unix socket; it stops with this object.
class ServedStore {
 public:
  ServedStore(const std::string& socket, const std::string& folder);
  ~ServedStore();
  ServedStore(const ServedStore&) = delete;
  ServedStore& operator=(const ServedStore&) = delete;

 private:
  struct Running;
  std::unique_ptr<Running> running_;
};

}  // namespace varve::test
