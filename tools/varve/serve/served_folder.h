#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/file_system.h"
#include "core/process.h"
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
    /// Returns `act(File&)`, or unknown_handle if the file was taken over meanwhile.
    template <class Act>
    auto use(const Act& act) -> decltype(act(std::declval<File&>())) {
      if (!written_) return act(*file_);
      const MutexLock lock(mutex_);
      if (revoked_) return Outcome::unknown_handle;
      return act(*file_);
    }
    void revoke() {
      const MutexLock lock(mutex_);
      revoked_ = true;
    }

   private:
    const std::unique_ptr<File> file_;
    const int descriptor_;
    const bool written_;
    Mutex mutex_;  ///< orders what is done to a file that is being written
    bool revoked_ VARVE_GUARDED_BY(mutex_) = false;
  };

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

  /// All handles by which it is written.
  std::vector<std::shared_ptr<OpenFile>> writers_of(const FileIdentity& file) VARVE_REQUIRES(mutex_);

  Mutex mutex_;  ///< not held while files are used or closed
  std::map<UniqueId, Client> clients_ VARVE_GUARDED_BY(mutex_);
  uint64_t next_handle_ VARVE_GUARDED_BY(mutex_) = 1;
};

/// Which paths a server lets its clients name.
using PathRule = bool (*)(std::string_view path);

/// The folder that a server serves. Paths are relative to it; none leads out of it, also not by symbolic links, which
/// are not followed at all. One process at a time has it. Failures name no subject: the client knows what it asked for.
/// Thread-safe.
class ServedFolder {
 public:
  /// Makes the folder (not those above it) if it is missing. busy: another server has it.
  static Result<std::unique_ptr<ServedFolder>> open(const std::string& path, PathRule rule);

  const std::string& path() const { return path_; }

  struct OpenFile {
    std::unique_ptr<File> file;
    int descriptor = -1;  ///< of `file`, which owns it
    FileIdentity identity;
    uint64_t bytes = 0;
  };
  Result<OpenFile> open_read(const std::string& path) const;
  Result<OpenFile> create(const std::string& path, bool direct) const;
  /// Opens a file for writing that was created before. not_found: another file is there now.
  Result<OpenFile> open_again(const std::string& path, bool direct, const FileIdentity& identity) const;

  Status create_directory(const std::string& path) const;
  Status rename(const std::string& from, const std::string& to, bool replace) const;
  Status remove(const std::string& path) const;
  Status remove_directory(const std::string& path) const;
  Status sync_directory(const std::string& path) const;
  Status touch(const std::string& path) const;
  Result<std::vector<DirectoryEntry>> list(const std::string& path) const;
  Result<uint64_t> free_bytes(const std::string& path) const;
  Result<FoundFile> stat(const std::string& path) const;

 private:
  ServedFolder(std::string path, UniqueFd root, PathRule rule)
      : path_(std::move(path)), root_(std::move(root)), rule_(rule) {}
  /// The folder that holds `path`, and the last part of it.
  struct Place {
    UniqueFd folder;
    std::string name;
  };
  Result<Place> place_of(const std::string& path) const;
  Result<UniqueFd> open_beneath(const std::string& path, int flags, unsigned mode, std::string_view what) const;
  Result<OpenFile> opened(const std::string& path, UniqueFd descriptor, bool direct) const;

  const std::string path_;
  const UniqueFd root_;  ///< holds the lock
  const PathRule rule_;
};

}  // namespace varve
