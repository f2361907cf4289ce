#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "core/file_system.h"
#include "core/sync.h"
#include "service/server_link.h"

namespace varve {

/// A file on a server that its creator writes. It has a connection of its own. With `direct` it is written ahead:
/// copies of what was sent and not answered yet are kept, so that they can be sent again over another connection.
///
/// It goes on after its connection was lost only if nothing that the server had acknowledged can be gone: the server's
/// machine was not restarted, the file is the same one, and no sync was under way. Otherwise, and after any failure of
/// a sync or of a write ahead, all further operations fail. (PROTOCOL.md, "A file that is being written")
class RemoteWriter final : public File {
 public:
  /// If the server sends the file's descriptor, it is written without the server, as one of this process' own.
  static Result<std::unique_ptr<File>> create(ServerLink& link, std::string path, std::string served_path, bool direct);
  ~RemoteWriter() override;
  RemoteWriter(const RemoteWriter&) = delete;
  RemoteWriter& operator=(const RemoteWriter&) = delete;

  Result<size_t> read_at(uint64_t offset, MutableByteSpan into) override;
  Status write_at(uint64_t offset, ByteSpan from) override;
  Status truncate(uint64_t bytes) override;
  Status sync() override;
  Result<uint64_t> size() override;

 private:
  /// A write that was sent and is not answered yet.
  struct Pending {
    Request request;
    Buffer copy;    ///< of a write ahead
    ByteSpan data;  ///< in `copy`, or the caller's
  };

  RemoteWriter(ServerLink& link, std::string path, std::string served_path, bool direct)
      : link_(link), path_(std::move(path)), served_path_(std::move(served_path)), direct_(direct) {}
  Result<Reply> start();
  Status write_piece(uint64_t offset, ByteSpan piece);
  /// Takes answers until no more than so many bytes are unanswered; finds another connection if need be.
  Status settle(size_t bytes_max);
  Status take_answer();
  /// Takes the file up over another connection, and sends again what was not answered. `failure` is what was wrong
  /// with the last one.
  Status resume(const Status& failure);
  Status try_to_resume();
  /// Carries out what may be repeated, over as many connections as it takes.
  Result<Reply> ask(Request request);
  /// Remembers that the file is lost.
  Status give_up(const Status& why);

  ServerLink& link_;
  const std::string path_, served_path_;
  const bool direct_;
  Mutex mutex_;  // guards what follows, and orders all operations
  UniqueId token_;
  FileIdentity identity_;
  UniqueId boot_;
  uint64_t handle_ = 0;
  std::unique_ptr<ServerConnection> connection_;  ///< null between two connections
  std::deque<Pending> pending_;
  size_t pending_bytes_ = 0;
  std::vector<Buffer> idle_copies_;  ///< of writes that are answered: memory that need not be touched anew
  Status lost_;                      ///< why the file was given up
};

}  // namespace varve
