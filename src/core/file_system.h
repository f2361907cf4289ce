#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/buffer.h"
#include "core/bytes.h"
#include "varve/status.h"

namespace varve {

/// Bytes that are read in ranges, by several threads at once.
class RangeReader {
 public:
  virtual ~RangeReader() = default;
  /// Reads up to `into.size()` bytes at `offset`; fewer only at the end. Returns how many. A large read that is aligned
  /// to kDirectAlignment (address, offset and size) may bypass the page cache.
  virtual Result<size_t> read_at(uint64_t offset, MutableByteSpan into) = 0;
  /// The same with one read into several places, the bytes of one following those of the one before.
  virtual Result<size_t> read_parts(uint64_t offset, std::span<const MutableByteSpan> parts);
  virtual Result<uint64_t> size() = 0;
  /// A hint that these bytes will be read soon: who can have them fetched meanwhile does, and returns at once.
  virtual void will_need(uint64_t /*offset*/, uint64_t /*bytes*/) {}
};

/// An open file. Positional reads and writes may come from several threads at once; closed by the destructor.
class File : public RangeReader {
 public:
  /// Writes all of `from` at `offset`. On failure any part of it may have been written.
  virtual Status write_at(uint64_t offset, ByteSpan from) = 0;
  /// How many threads may be in write_at() at the same time, each with a range of its own, and gain by it.
  virtual size_t writes_at_once() const { return 1; }
  /// Makes the file exactly `bytes` long.
  virtual Status truncate(uint64_t bytes) = 0;
  /// Makes contents and size durable. After a failure nothing written before may be believed durable, and calling it
  /// again proves nothing (the kernel may have dropped the pages): the file must be given up.
  virtual Status sync() = 0;
};

struct DirectoryEntry {
  std::string name;
  bool is_directory = false;
};

struct FileStatus {
  uint64_t bytes = 0;
  uint64_t allocated_bytes = 0;
  /// Modification time in nanoseconds as stamped by the file system; compare it only with others of that file system.
  int64_t modified_ns = 0;
  bool is_directory = false;
};

struct CreateOptions {
  /// Bypass the page cache where the file system allows it (else buffered). Then every write must start at a multiple
  /// of kDirectAlignment, from memory so aligned, and be a multiple of it long. The file may be longer than what was
  /// written to it, until truncate() cuts that off.
  bool direct = false;
};

/// That a loss of power is noticed: see FileSystem::watch_power().
class PowerWatch {
 public:
  virtual ~PowerWatch() = default;
};

/// What a store needs of the system under it. Paths are absolute or relative to the working directory, `/`-separated.
/// All operations may be called from several threads. Durability: a file's bytes after File::sync(), a name (created,
/// renamed or removed) after sync_directory() of the folder that holds it.
///
/// A machine far away may lose power between the two, and be back before the sync, which would then find nothing to do.
/// So the first sync after it fails (io_error) if names in the folder were changed before it and not synced. That is
/// enough for one thread that changes names and syncs their folder; all other work has a PowerWatch.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  virtual Result<std::unique_ptr<File>> open_read(const std::string& path) = 0;
  /// Creates a file that must not exist yet (O_EXCL) for writing and reading. already_exists otherwise.
  virtual Result<std::unique_ptr<File>> create(const std::string& path, CreateOptions options = {}) = 0;

  /// Creates one directory. OK if it is there already.
  virtual Status create_directory(const std::string& path) = 0;
  /// Atomically renames a file within one file system; replaces `to`.
  virtual Status rename(const std::string& from, const std::string& to) = 0;
  /// The same, but already_exists if `to` exists; `from` is then unchanged. not_found if `from` is gone.
  virtual Status rename_no_replace(const std::string& from, const std::string& to) = 0;
  virtual Status remove(const std::string& path) = 0;
  /// Removes an empty directory; already_exists (ENOTEMPTY) if it is not empty.
  virtual Status remove_directory(const std::string& path) = 0;
  virtual Status sync_directory(const std::string& path) = 0;
  /// For work that changes names in several folders, shares folders with other threads, or goes by names that others
  /// have changed: made before it looks at anything. As long as it lives, sync_directory() fails (io_error) if the
  /// machine that has the files has lost power since: what this process has seen and done may not be so any more. Work
  /// that failed so is done anew, with another watch. May be null: this process would not have outlived it. The file
  /// system outlives it.
  virtual Result<std::unique_ptr<PowerWatch>> watch_power() { return std::unique_ptr<PowerWatch>(); }
  /// Sets the modification time to the file system's now: a heartbeat. not_found if the file is gone.
  virtual Status touch(const std::string& path) = 0;

  /// Entries other than "." and "..", in no order.
  virtual Result<std::vector<DirectoryEntry>> list(const std::string& path) = 0;
  virtual Result<FileStatus> stat(const std::string& path) = 0;

  /// What may still be written where the folder `path` is. unsupported: that is not known there.
  virtual Result<uint64_t> free_bytes(const std::string& path) {
    return Status::unsupported("nobody knows how much room is left", path);
  }

  /// What people call `path`, where that is not what programs do: where it lies, or was last seen, or belongs. Does not
  /// look.
  virtual std::string shown_path(const std::string& path) const { return path; }
};

/// The real one. One object serves the process.
FileSystem& posix_file_system();

/// Reads exactly `into.size()` bytes; `corrupt` if the file ends before. `path` is for the message.
Status read_exactly(RangeReader& file, uint64_t offset, MutableByteSpan into, const std::string& path);
/// The whole of what should be small; resource_limit if it is larger than `bytes_max`.
Result<ByteVector> read_all(RangeReader& file, uint64_t bytes_max, const std::string& path);
Result<ByteVector> read_file(FileSystem& fs, const std::string& path, uint64_t bytes_max);
/// Writes a new file durably: temporary name, sync, rename over `path`, directory sync.
Status write_file_durably(FileSystem& fs, const std::string& path, ByteSpan contents);
/// The same; already_exists, without a change, if there is a file of that name. `draft`: what it is called before that,
/// in the same folder; empty: a name that is made of `path`.
Status create_file_durably(FileSystem& fs, const std::string& path, ByteSpan contents, std::string draft = {});

std::string join_path(std::string_view directory, std::string_view name);
/// The part before the last '/', "." if there is none.
std::string parent_path(std::string_view path);
/// The part after the last '/' (trailing slashes ignored).
std::string base_name(std::string_view path);

/// Passes everything on to another file: what a decorator does not change. read_parts() is by its read_at().
class ForwardingFile : public File {
 public:
  explicit ForwardingFile(std::unique_ptr<File> inner) : inner_(std::move(inner)) {}

  Result<size_t> read_at(uint64_t offset, MutableByteSpan into) override { return inner_->read_at(offset, into); }
  Status write_at(uint64_t offset, ByteSpan from) override { return inner_->write_at(offset, from); }
  Status truncate(uint64_t bytes) override { return inner_->truncate(bytes); }
  Status sync() override { return inner_->sync(); }
  Result<uint64_t> size() override { return inner_->size(); }
  void will_need(uint64_t offset, uint64_t bytes) override { inner_->will_need(offset, bytes); }

 private:
  const std::unique_ptr<File> inner_;
};

/// Passes everything on to another file system, which outlives it: what a decorator does not change.
class ForwardingFileSystem : public FileSystem {
 public:
  explicit ForwardingFileSystem(FileSystem& inner) : inner_(inner) {}

  Result<std::unique_ptr<File>> open_read(const std::string& path) override { return inner_.open_read(path); }
  Result<std::unique_ptr<File>> create(const std::string& path, CreateOptions options = {}) override {
    return inner_.create(path, options);
  }
  Status create_directory(const std::string& path) override { return inner_.create_directory(path); }
  Status rename(const std::string& from, const std::string& to) override { return inner_.rename(from, to); }
  Status rename_no_replace(const std::string& from, const std::string& to) override {
    return inner_.rename_no_replace(from, to);
  }
  Status remove(const std::string& path) override { return inner_.remove(path); }
  Status remove_directory(const std::string& path) override { return inner_.remove_directory(path); }
  Status sync_directory(const std::string& path) override { return inner_.sync_directory(path); }
  Result<std::unique_ptr<PowerWatch>> watch_power() override { return inner_.watch_power(); }
  Status touch(const std::string& path) override { return inner_.touch(path); }
  Result<std::vector<DirectoryEntry>> list(const std::string& path) override { return inner_.list(path); }
  Result<FileStatus> stat(const std::string& path) override { return inner_.stat(path); }
  Result<uint64_t> free_bytes(const std::string& path) override { return inner_.free_bytes(path); }
  std::string shown_path(const std::string& path) const override { return inner_.shown_path(path); }

 private:
  FileSystem& inner_;
};

}  // namespace varve
