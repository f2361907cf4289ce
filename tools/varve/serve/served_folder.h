#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/file_system.h"
#include "core/process.h"
#include "core/sync.h"
#include "serve/key_share.h"
#include "service/protocol.h"

namespace varve {

/// A file of a store that a server has opened.
struct ServedFile {
  std::unique_ptr<File> file;
  int descriptor = -1;  ///< of `file`, which owns it; -1: it has none
  FileIdentity identity;
  uint64_t bytes = 0;
};

/// The files that the clients of a server have open. A client's connections share its files; they are closed when its
/// last connection ends. A file that is being written belongs to one writer, known by a token: when that one comes back
/// over another connection, whatever the old one still sends is refused. Thread-safe.
class OpenFiles {
 public:
  /// A file, in use by one request at a time if it is being written.
  class OpenFile {
   public:
    OpenFile(ServedFile opened, KeyShare::FilePlace place, bool written)
        : place_(std::move(place)),
          file_(std::move(opened.file)),
          descriptor_(opened.descriptor),
          identity_(opened.identity),
          written_(written) {}
    int descriptor() const { return descriptor_; }
    const FileIdentity& identity() const { return identity_; }
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
    const KeyShare::FilePlace place_;  ///< until the file is closed
    const std::unique_ptr<File> file_;
    const int descriptor_;
    const FileIdentity identity_;
    const bool written_;
    Mutex mutex_;  ///< orders what is done to a file that is being written
    bool revoked_ VARVE_GUARDED_BY(mutex_) = false;
  };

  /// `server`: this run of it.
  explicit OpenFiles(const UniqueId& server);

  void begin_connection(const UniqueId& client);
  void end_connection(const UniqueId& client);

  /// A number that no other run of the server has given to any file. resource_limit: the client, or all of `share`,
  /// have too many. `writer` of a file that is being written: see take_over().
  Result<uint64_t> add(const UniqueId& client, KeyShare& share, ServedFile file, const UniqueId* writer);
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
  uint64_t next_handle_ VARVE_GUARDED_BY(mutex_);
};

/// Which paths a server lets its clients name.
using PathRule = bool (*)(std::string_view path);

/// The files of a store that a server serves, wherever they lie. Paths are relative to the store's root. What each
/// does, and what is durable when, is what FileSystem says of the operation of that name. Failures name no subject: the
/// client knows what it asked for. Thread-safe, but for what makes, renames or removes one name at the same time: who
/// calls that has claimed the name (OwnNames::Claim).
class ServedFiles {
 public:
  virtual ~ServedFiles() = default;

  virtual Result<ServedFile> open_read(const std::string& path) = 0;
  virtual Result<ServedFile> create(const std::string& path, bool direct) = 0;
  /// Opens a file for writing that was created before. not_found: another file is there now.
  virtual Result<ServedFile> open_again(const std::string& path, bool direct, const FileIdentity& identity) = 0;

  virtual Status create_directory(const std::string& path) = 0;
  virtual Status rename(const std::string& from, const std::string& to, bool replace) = 0;
  virtual Status remove(const std::string& path) = 0;
  virtual Status remove_directory(const std::string& path) = 0;
  virtual Status sync_directory(const std::string& path) = 0;
  virtual Status touch(const std::string& path) = 0;
  virtual Result<uint64_t> free_bytes(const std::string& path) = 0;
  virtual Result<FoundFile> stat(const std::string& path) = 0;
  virtual Result<std::vector<DirectoryEntry>> list(const std::string& path) = 0;
  /// Whether the file at `path` is the one of which stat() said `identity`, maybe when it had another name.
  virtual Result<bool> is_same(const std::string& path, const FileIdentity& identity) = 0;
};

/// A folder that a server serves. No path leads out of it, also not by symbolic links, which are not followed at all.
/// One process at a time has it. Thread-safe.
class ServedFolder final : public ServedFiles {
 public:
  /// Makes the folder (not those above it) if it is missing. busy: another server has it.
  static Result<std::unique_ptr<ServedFolder>> open(const std::string& path, PathRule rule);

  const std::string& path() const { return path_; }

  Result<ServedFile> open_read(const std::string& path) override;
  Result<ServedFile> create(const std::string& path, bool direct) override;
  Result<ServedFile> open_again(const std::string& path, bool direct, const FileIdentity& identity) override;
  Status create_directory(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to, bool replace) override;
  Status remove(const std::string& path) override;
  Status remove_directory(const std::string& path) override;
  Status sync_directory(const std::string& path) override;
  Status touch(const std::string& path) override;
  Result<uint64_t> free_bytes(const std::string& path) override;
  Result<FoundFile> stat(const std::string& path) override;
  Result<std::vector<DirectoryEntry>> list(const std::string& path) override;
  Result<bool> is_same(const std::string& path, const FileIdentity& identity) override;

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
  Result<ServedFile> opened(const std::string& path, UniqueFd descriptor, bool direct) const;

  const std::string path_;
  const UniqueFd root_;  ///< holds the lock
  const PathRule rule_;
};

}  // namespace varve
