#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/file_system.h"
#include "core/sync.h"

namespace varve {

/// The unit in which a disk writes whole or not at all.
inline constexpr size_t kSectorBytes = 512;

/// What is left after a crash of what was not made durable.
struct CrashPolicy {
  enum class Kind : uint8_t {
    keep_all,       ///< the process was killed: the kernel still has everything, durable or not
    drop_unsynced,  ///< power loss at its worst: only what was synced
    torn,           ///< power loss: any part of the rest, sector by sector and name by name, drawn from `seed`
  };
  Kind kind = Kind::drop_unsynced;
  uint64_t seed = 0;  ///< of torn; the same seed gives the same outcome
};

/// A file whose dirty pages can be lost, as a kernel loses them when writing them back fails.
class LossyFile {
 public:
  virtual ~LossyFile() = default;
  /// What was written and not synced stays readable but never becomes durable, even if a later sync() says OK.
  virtual void lose_unsynced() = 0;
};

/// A file or a directory of a MemoryFileSystem.
struct MemoryNode;

/// A file system in memory that knows what a power loss would leave of it: for each file the contents that are read and
/// those that are durable, for each directory likewise its names. File::sync() makes contents and size durable,
/// sync_directory() the names. A rename is atomic, also between directories: durable once either directory is synced.
/// Relative and absolute paths mean the same; the root exists. Renames files only. Files must be closed before it is
/// destroyed. Thread-safe (one lock).
class MemoryFileSystem final : public FileSystem {
 public:
  MemoryFileSystem();
  ~MemoryFileSystem() override;
  MemoryFileSystem(const MemoryFileSystem&) = delete;
  MemoryFileSystem& operator=(const MemoryFileSystem&) = delete;

  /// The state that a program finds after the crash; this object is unchanged. After a power loss, all that is left is
  /// durable.
  std::unique_ptr<MemoryFileSystem> after_crash(CrashPolicy policy) const;

  /// Where modification times come from; without it, each is one more than the last.
  void set_clock(std::function<int64_t()> now_ns) {
    const MutexLock lock(mutex_);
    now_ns_ = std::move(now_ns);
  }

  Result<std::unique_ptr<File>> open_read(const std::string& path) override;
  Result<std::unique_ptr<File>> create(const std::string& path, CreateOptions options = {}) override;
  Status create_directory(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status rename_no_replace(const std::string& from, const std::string& to) override;
  Status remove(const std::string& path) override;
  Status remove_directory(const std::string& path) override;
  Status sync_directory(const std::string& path) override;
  Status touch(const std::string& path) override;
  Result<std::vector<DirectoryEntry>> list(const std::string& path) override;
  Result<FileStatus> stat(const std::string& path) override;

 private:
  class OpenFile;
  using NodePointer = std::shared_ptr<MemoryNode>;
  /// A change of names that is not durable yet: `node` appears as to/to_name, and from/from_name disappears; either may
  /// be missing.
  struct NameChange {
    NodePointer from, to, node;
    std::string from_name, to_name;
    void apply_to_durable() const;
  };

  Status rename_file(const std::string& from, const std::string& to, bool replace);
  Status remove_name(const std::string& path, bool directory);
  void change_names(NameChange change) VARVE_REQUIRES(mutex_);
  int64_t tick() VARVE_REQUIRES(mutex_) { return now_ns_ ? now_ns_() : ++clock_; }
  void lose_power(const CrashPolicy& policy) VARVE_REQUIRES(mutex_);

  /// Guards all nodes too. The machine's: nobody loses his turn in it.
  mutable SystemMutex mutex_;
  NodePointer root_ VARVE_GUARDED_BY(mutex_);
  std::vector<NameChange> unsynced_names_ VARVE_GUARDED_BY(mutex_);  ///< in the order in which they happened
  int64_t clock_ VARVE_GUARDED_BY(mutex_) = 0;  ///< the last modification time given out, if there is no other clock
  std::function<int64_t()> now_ns_ VARVE_GUARDED_BY(mutex_);
};

}  // namespace varve
