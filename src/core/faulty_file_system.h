#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/file_system.h"
#include "core/sync.h"

namespace varve {

enum class FaultKind : uint8_t {
  crash,  ///< from a mutating operation on, everything fails and nothing has an effect; a write may be torn at a sector
  no_space,     ///< an operation that needs space (create, write, truncate, create_directory, rename) fails, without
                ///< effect
  io_error,     ///< a mutating operation fails, without effect
  short_write,  ///< a write stops somewhere in the middle and fails
  failed_sync,  ///< a file's sync fails, and what was unsynced is lost for good (see LossyFile); or a directory's fails
  failed_rename,  ///< a rename fails, without effect
  failed_read,    ///< a reading operation fails
  flipped_bit,    ///< a read or a mapping succeeds with one bit wrong
};

/// Strikes the first operation it applies to whose number is at least `at_operation`; with `persistent`, all of them
/// from there on. failed_read and flipped_bit go by the number of the reading operation, the others by that of the
/// mutating one. A crash is always persistent, and ends the reading as well.
struct Fault {
  FaultKind kind = FaultKind::crash;
  uint64_t at_operation = 0;  ///< the first operation has number 0
  bool persistent = false;
  uint64_t seed = 0;  ///< draws where a write stops and which bit flips
};

/// What a file system is asked to do.
enum class FileOperation : uint8_t;

/// Passes everything on to another file system, counts the operations, and makes those fail that it was told to. To try
/// a program against every possible fault, run it once without, then once for each number below operation_count().
/// Files it has opened must be closed before it is destroyed. Thread-safe if the other one is.
class FaultyFileSystem final : public FileSystem {
 public:
  explicit FaultyFileSystem(FileSystem& inner, std::vector<Fault> faults = {});

  struct OperationCount {
    uint64_t mutating = 0;  ///< create, write, truncate, sync, rename, remove, touch, and the same of directories
    uint64_t reading = 0;   ///< open, read, size, list, stat
  };
  OperationCount operation_count() const;
  /// Whether any fault has struck.
  bool struck() const;
  bool crashed() const;
  /// The last operations, oldest first, one per line with its number and what struck it: for a test's failure message.
  std::string trace() const;

  Result<std::unique_ptr<File>> open_read(const std::string& path) override;
  Result<std::unique_ptr<File>> create(const std::string& path, CreateOptions options = {}) override;
  Status create_directory(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status rename_no_replace(const std::string& from, const std::string& to) override;
  Status remove(const std::string& path) override;
  Status remove_directory(const std::string& path) override;
  Status sync_directory(const std::string& path) override;
  Result<std::unique_ptr<PowerWatch>> watch_power() override { return inner_.watch_power(); }
  Status touch(const std::string& path) override;
  Result<std::vector<DirectoryEntry>> list(const std::string& path) override;
  Result<FileStatus> stat(const std::string& path) override;

 private:
  class FaultyFile;
  /// What an operation must do: go on with `status` OK and no `kind`, or act as its fault says.
  struct Verdict {
    Status status;
    bool struck = false;
    FaultKind kind = FaultKind::crash;
    uint64_t draw = 0;  ///< a random number for the fault's use
  };

  Verdict judge(FileOperation operation, const std::string& subject);
  void record(uint64_t number, FileOperation operation, const std::string& subject, const char* outcome)
      VARVE_REQUIRES(mutex_);

  FileSystem& inner_;
  mutable Mutex mutex_;  ///< never held while calling inner_
  std::vector<Fault> faults_ VARVE_GUARDED_BY(mutex_);
  OperationCount count_ VARVE_GUARDED_BY(mutex_);
  bool crashed_ VARVE_GUARDED_BY(mutex_) = false;
  bool struck_ VARVE_GUARDED_BY(mutex_) = false;
  std::deque<std::string> trace_ VARVE_GUARDED_BY(mutex_);
};

}  // namespace varve
