#pragma once

#include <memory>
#include <string>

#include "core/file_system.h"
#include "core/sync.h"
#include "service/server_link.h"

namespace varve {

/// A file on a server that is only read; without the server, if it has sent the descriptor. Otherwise, after the server
/// was restarted it is opened again, if it is still the same file.
class RemoteReader final : public File {
 public:
  /// `opened`: the reply to `open`.
  RemoteReader(ServerLink& link, std::string path, std::string served_path, const Reply& opened);
  ~RemoteReader() override;
  RemoteReader(const RemoteReader&) = delete;
  RemoteReader& operator=(const RemoteReader&) = delete;

  Result<size_t> read_at(uint64_t offset, MutableByteSpan into) override;
  Status write_at(uint64_t offset, ByteSpan from) override;
  Status truncate(uint64_t bytes) override;
  Status sync() override { return {}; }
  /// That of when it was opened: files of a store do not grow once they are read.
  Result<uint64_t> size() override { return bytes_; }

 private:
  uint64_t handle();
  /// Opens the file again, unless another thread has done so since `lost` was its handle.
  Status reopen(uint64_t lost);

  ServerLink& link_;
  const std::string path_, served_path_;
  const FileIdentity identity_;
  const uint64_t bytes_;
  const std::unique_ptr<File> attached_;  ///< null: all goes through the server
  Mutex mutex_;                           // guards handle_, and orders opening again
  uint64_t handle_;
};

/// What came of reading, as far as the connection held.
struct ReadOutcome {
  size_t bytes = 0;          ///< fewer than asked for only at the file's end
  bool lost_handle = false;  ///< the server does not know the handle (any more), and nothing was read
  Status failure;            ///< the server's
};
/// Reads from an open file of a server, several requests at a time: to `into`, from `offset` on. Fails if the
/// connection does.
Result<ReadOutcome> read_ahead(ServerConnection& connection, uint64_t handle, uint64_t offset, MutableByteSpan into);

}  // namespace varve
