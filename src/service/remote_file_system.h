#pragma once

#include <memory>
#include <string>

#include "core/file_system.h"
#include "service/server_link.h"
#include "store/chunk_lookup.h"

namespace varve {

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
  Result<Reply> ask_about(Message message, const std::string& path);
  Status change(Message message, const std::string& path);
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

 private:
  Status find_some(std::span<const uint64_t> prefixes, std::span<uint32_t> counts,
                   std::vector<ChunkCandidate>& candidates);
  ServerLink& link_;
};

}  // namespace varve
