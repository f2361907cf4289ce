#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "core/file_system.h"
#include "core/sync.h"
#include "service/protocol.h"
#include "service/server_link.h"
#include "store/chunk_index.h"

namespace varve {

/// The Status of a reply that is not done, about `path`, which the server does not know by its full name.
Status failure_of(const ReplyHead& reply, const std::string& path);

/// What the server says of `path`, or why it does not.
template <class Fields>
Result<Fields> fields_of(Result<Reply<Fields>> reply, const std::string& path) {
  VARVE_TRY(reply.status());
  VARVE_TRY(failure_of(*reply, path));
  return std::move(reply->fields);
}

/// A file on a server that is only read; without the server, if it has sent the descriptor. Otherwise, after the server
/// was restarted it is opened again, if it is still the same file.
class RemoteReader final : public File {
 public:
  /// `opened`: the reply to `open`.
  RemoteReader(ServerLink& link, std::string path, std::string served_path, const OpenedFile& opened);
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
  Mutex mutex_;                           ///< orders opening again
  uint64_t handle_ VARVE_GUARDED_BY(mutex_);
};

/// Reads from an open file of a server, several requests at a time: to `into`, from `offset` on. The bytes that were
/// read are fewer than asked for only at the file's end. Fails if the connection does.
Result<Reply<ByteCount>> read_ahead(ServerConnection& connection, uint64_t handle, uint64_t offset,
                                    MutableByteSpan into);

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
    WriteRequest request;
    Buffer copy;    ///< of a write ahead
    ByteSpan data;  ///< in `copy`, or the caller's
  };

  RemoteWriter(ServerLink& link, std::string path, std::string served_path, bool direct)
      : link_(link), path_(std::move(path)), served_path_(std::move(served_path)), direct_(direct) {}
  Result<OpenedFile> start();
  Status write_piece(uint64_t offset, ByteSpan piece) VARVE_REQUIRES(mutex_);
  /// Takes answers until no more than so many bytes are unanswered; finds another connection if need be.
  Status settle(size_t bytes_max) VARVE_REQUIRES(mutex_);
  Status take_answer() VARVE_REQUIRES(mutex_);
  /// Takes the file up over another connection, and sends again what was not answered. `failure` is what was wrong
  /// with the last one. Gives the file up if that has happened again and again.
  Status resume(const Status& failure) VARVE_REQUIRES(mutex_);
  Status try_to_resume() VARVE_REQUIRES(mutex_);
  /// Has `act(again)` ask what may be repeated, over as many connections as it takes, until the file is known.
  template <class Message, class Act>
  Result<ReplyTo<Message>> until_answered(const Act& act) VARVE_REQUIRES(mutex_);
  /// Remembers that the file is lost.
  Status give_up(const Status& why) VARVE_REQUIRES(mutex_);

  ServerLink& link_;
  const std::string path_, served_path_;
  const bool direct_;
  Mutex mutex_;  ///< orders all operations
  UniqueId token_ VARVE_GUARDED_BY(mutex_);
  FileIdentity identity_ VARVE_GUARDED_BY(mutex_);
  UniqueId boot_ VARVE_GUARDED_BY(mutex_);
  uint64_t handle_ VARVE_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<ServerConnection> connection_ VARVE_GUARDED_BY(mutex_);  ///< null between two connections
  std::deque<Pending> pending_ VARVE_GUARDED_BY(mutex_);
  size_t pending_bytes_ VARVE_GUARDED_BY(mutex_) = 0;
  /// Of writes that are answered: memory that need not be touched anew.
  std::vector<Buffer> idle_copies_ VARVE_GUARDED_BY(mutex_);
  int resumed_count_ VARVE_GUARDED_BY(mutex_) = 0;  ///< since the server has answered the last request
  Status lost_ VARVE_GUARDED_BY(mutex_);            ///< why the file was given up
};

/// The file of a reply that came with its descriptor, to be used without the server. Null: none came, or it is not that
/// of the file that the reply speaks of. `direct` as in CreateOptions; `path` is for messages.
std::unique_ptr<File> attached_file(const OpenedFile& opened, const std::string& path, bool direct);

/// The folder that a server serves, as a file system: paths begin with root(), which stands for that folder. Everything
/// that the server sends is checked as a message, and trusted no further: what reads a store checks what it reads.
///
/// An operation whose connection is lost is carried out over another one, exactly once, or fails (PROTOCOL.md, "What is
/// repeated"): io_error, if the server cannot be reached for LinkOptions::reconnect_seconds, or if it was restarted and
/// there is no telling what it had done. So does a sync of a folder after the machine was restarted, if what was to be
/// made durable may be lost (NameChanges), or if nobody knows whether an earlier sync has failed.
///
/// Files that were created with `direct` are written ahead: write_at() may return before the server has answered. What
/// failed comes out at the next write, truncate, read, size or sync; after any failure the file must be given up.
class RemoteFileSystem final : public FileSystem {
 public:
  /// `link` outlives this object and the files that it has opened, and knows what was changed by way of it.
  explicit RemoteFileSystem(ServerLink& link) : link_(link), root_(link.name()) {}

  const std::string& root() const { return root_; }

  Result<std::unique_ptr<File>> open_read(const std::string& path) override;
  Result<std::unique_ptr<File>> create(const std::string& path, CreateOptions options = {}) override;
  /// Fetches the whole file: resource_limit if it is larger than 1 GiB.
  Status create_directory(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status rename_no_replace(const std::string& from, const std::string& to) override;
  Status remove(const std::string& path) override;
  Status remove_directory(const std::string& path) override;
  Status sync_directory(const std::string& path) override;
  Result<std::unique_ptr<PowerWatch>> watch_power() override;
  Status touch(const std::string& path) override;
  Result<std::vector<DirectoryEntry>> list(const std::string& path) override;
  Result<FileStatus> stat(const std::string& path) override;
  Result<uint64_t> free_bytes(const std::string& path) override;

 private:
  /// `path` as the server knows it. permission_denied: it is not in the folder that the server serves.
  Result<std::string> served(const std::string& path) const;
  template <class Message>
  Result<typename Message::ReplyFields> ask_about(Message message, const std::string& path);
  Status rename(const std::string& from, const std::string& to, bool replace);

  ServerLink& link_;
  const std::string root_;
};

/// What a server's index knows of many chunks at once. Thread-safe.
class RemoteChunkLookup final : public ChunkLookup {
 public:
  explicit RemoteChunkLookup(ServerLink& link) : link_(link) {}
  Status find(std::span<const uint64_t> prefixes, std::span<uint32_t> counts,
              std::vector<ChunkCandidate>& candidates) override;
  bool is_far() const override { return true; }
  bool keeps_index() const override { return true; }

 private:
  Status find_some(std::span<const uint64_t> prefixes, std::span<uint32_t> counts,
                   std::vector<ChunkCandidate>& candidates);
  ServerLink& link_;
};

}  // namespace varve
