#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/put_aside.h"
#include "core/sync.h"
#include "serve/rights.h"
#include "serve/served_folder.h"

namespace varve {

/// A store in a Backend, most of all in a bucket, served as a folder: what a client does with files becomes what the
/// backend can do.
///
/// - A draft of an arena or an index run is an ObjectWriter: its bytes are sent as they come, and its sync, or else its
///   rename, seals the object under its last name.
/// - A lease, a mark, and what tells that a part will not come, is a HeldRecord: it is in the backend when its file has
///   been made, says what was written when that was synced, and the rename of a lease is its become().
/// - Other small files (a header's draft, the files of runs/) are kept in memory until they are synced, and then are
///   records of the backend; who renames one makes another of the same contents.
///
/// What is acknowledged as durable is in the backend. What is not is lost when the process ends: a client is told so
/// (not_found, and to save again) whatever it does with such a file.
///
/// A lease is removed so that its writer can commit nothing any more, though a commit is two steps of the backend
/// (COMMIT.md, "In a bucket behind a server"): busy, as long as nobody can tell. Thread-safe.
class ServedBackend final : public ServedFiles {
 public:
  /// `backend` outlives it. `memory_bytes`, about, is what small files may take that are being written, all together:
  /// one request makes such a file as large as it likes.
  explicit ServedBackend(Backend& backend, uint64_t memory_bytes = 1_GiB)
      : backend_(backend), memory_{.bytes_max = memory_bytes} {}
  ~ServedBackend() override;

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

  class Draft;
  /// What the small ones take.
  struct Memory {
    const uint64_t bytes_max;
    std::atomic<uint64_t> bytes{0};
  };

 private:
  /// Those that clients write. Thread-safe.
  class Drafts {
   public:
    std::shared_ptr<Draft> find(const std::string& path);
    /// already_exists: there is another one, which is not to be replaced.
    Status add(const std::string& path, std::shared_ptr<Draft> draft, IfExists if_exists);
    void forget(const std::string& path, const Draft* draft);
    /// Forgets those that nobody has had open for a while.
    void forget_idle();
    size_t count(StoreName name);
    /// Appends the names of those in a folder that are no records.
    void list(const std::string& folder, std::set<std::string>& names);

   private:
    Mutex mutex_;  ///< no other lock is taken with it
    std::map<std::string, std::shared_ptr<Draft>> drafts_ VARVE_GUARDED_BY(mutex_);
  };

  std::string full(const std::string& path) const { return join_path(backend_.root(), path); }
  Result<std::shared_ptr<Draft>> make_draft(const std::string& path, bool direct);
  /// Of a file that this process has not made, or has forgotten.
  Status rename_stored(const std::string& from, const std::string& to, IfExists if_exists);
  /// Several steps of the backend: nobody else may change these names meanwhile.
  Status rename_small(const std::string& from, const std::string& to, IfExists if_exists);
  /// The name in the bucket of what clients see under this path.
  std::string shown_name(const std::string& path) const;
  Status remove_aside(const PutAside& aside);
  Status remove_lease(const std::string& path);

  Backend& backend_;
  Memory memory_;
  Drafts drafts_;
};

}  // namespace varve
