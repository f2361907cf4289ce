#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "core/file_system.h"
#include "core/sync.h"
#include "service/protocol.h"

namespace varve {

/// The files that the clients of a server have open. A client's connections share its files; they are closed when its
/// last connection ends. A file that is being written belongs to one writer, known by a token: when that one comes back
/// over another connection, whatever the old one still sends is refused. Thread-safe.
class OpenFiles {
 public:
  /// A file, in use by one request at a time if it is being written.
  class OpenFile {
   public:
    /// `descriptor`: of `file`, which owns it.
    OpenFile(std::unique_ptr<File> file, int descriptor, bool written)
        : file_(std::move(file)), descriptor_(descriptor), written_(written) {}
    int descriptor() const { return descriptor_; }
    bool written() const { return written_; }
    /// Calls `act(File&)`, or returns unknown_handle if the file was taken over meanwhile.
    template <class Act>
    Reply use(const Act& act) {
      if (!written_) return act(*file_);
      const std::lock_guard lock(mutex_);
      if (revoked_) return unknown();
      return act(*file_);
    }
    void revoke() {
      const std::lock_guard lock(mutex_);
      revoked_ = true;
    }

   private:
    const std::unique_ptr<File> file_;
    const int descriptor_;
    const bool written_;
    Mutex mutex_;  // guards revoked_, and orders what is done to a file that is being written
    bool revoked_ = false;
  };
  static Reply unknown();

  void begin_connection(const UniqueId& client);
  void end_connection(const UniqueId& client);

  /// resource_limit: the client has too many. `writer` of a file that is being written: see take_over().
  Result<uint64_t> add(const UniqueId& client, std::unique_ptr<File> file, int descriptor, const UniqueId* writer);
  /// Null: there is none of that number.
  std::shared_ptr<OpenFile> find(const UniqueId& client, uint64_t handle);
  void close(const UniqueId& client, uint64_t handle);
  /// Ends what is being done to the writer's file, if it is open: once this has returned, nothing more is written to it
  /// by what was sent before.
  void take_over(const UniqueId& client, const UniqueId& writer);
  /// Has all who have this very file open for writing lose it, as take_over() does.
  void end_writing(const FileIdentity& file);
  /// Whether anybody has this very file open for writing.
  bool is_being_written(const FileIdentity& file);

 private:
  struct Client {
    size_t connections = 0;
    std::map<uint64_t, std::shared_ptr<OpenFile>> files;
    std::map<UniqueId, uint64_t> writers;
  };

  /// All handles by which it is written. Called with the lock.
  std::vector<std::shared_ptr<OpenFile>> writers_of(const FileIdentity& file);

  Mutex mutex_;  // guards what follows; not held while files are used or closed
  std::map<UniqueId, Client> clients_;
  uint64_t next_handle_ = 1;
};

}  // namespace varve
