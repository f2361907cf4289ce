#pragma once

#include <memory>
#include <string>

namespace varve::test {

/// A server of this process for the store in a folder; it stops with this object.
class ServedStore {
 public:
  /// At an address as users write it, "unix:/path" or "tcp://host:port"; port 0 is any free one. Over TCP, clients have
  /// to have the same key.
  ServedStore(const std::string& address, const std::string& folder, const std::string& key_file = {});
  ~ServedStore();
  ServedStore(const ServedStore&) = delete;
  ServedStore& operator=(const ServedStore&) = delete;

  /// Where it is.
  std::string address() const;
  /// Ends the server, whatever its clients are doing, or starts it anew at the same address.
  void stop();
  void start();

 private:
  struct Running;
  std::unique_ptr<Running> running_;
};

}  // namespace varve::test
