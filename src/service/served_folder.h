#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/file_system.h"
#include "core/unique_fd.h"
#include "service/protocol.h"

namespace varve {

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
  struct Found {
    FileStatus status;
    FileIdentity identity;
  };
  Result<Found> stat(const std::string& path) const;

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
