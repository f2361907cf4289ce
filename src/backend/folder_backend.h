#pragma once

#include <string>

#include "backend/backend.h"

namespace varve {

/// The records in a folder of a file system: a record becomes an object by a rename of its file, which fails if the
/// file is gone.
class FolderRecords final : public Records {
 public:
  /// `folder` and `fs` outlive it.
  FolderRecords(Backend& folder, FileSystem& fs) : folder_(folder), fs_(fs) {}
  FolderRecords(const FolderRecords&) = delete;
  FolderRecords& operator=(const FolderRecords&) = delete;

  Status publish(const std::string& name, ByteSpan contents) override;
  Status replace(const std::string& name, ByteSpan contents) override {
    return write_file_durably(fs_, name, contents);
  }
  Result<std::unique_ptr<HeldRecord>> hold(const std::string& name, ByteSpan contents) override;
  Status touch(const std::string& name) override { return fs_.touch(name); }
  Status remove_unchanged(const std::string& name, ByteSpan contents) override;
  Result<bool> remove_committed(const std::string& name, ByteSpan contents) override;
  Status unhide(const std::string& folder, bool finish) override;
  Status remove_hidden(const std::string& name) override;
  Status confirm(const std::string& name, ByteSpan contents) override;
  Result<int64_t> now() override;

 private:
  /// Gives what was put aside its name back, if it is there; or removes it, if a newer one has that by now.
  Status put_back(const std::string& aside, const std::string& name);

  Backend& folder_;
  FileSystem& fs_;
};

/// A folder of a file system: of this machine, of memory, or of one that servers make out of theirs. An object has
/// another name until it is sealed, and gets its own by a rename that replaces nothing.
class FolderBackend final : public Backend {
 public:
  /// The file system outlives it.
  FolderBackend(FileSystem& fs, std::string root) : fs_(fs), root_(std::move(root)) {}

  const std::string& root() const override { return root_; }
  Records& records() override { return records_; }
  Result<std::unique_ptr<ObjectWriter>> put(const std::string& name, PutOptions options = {}) override;
  Result<std::unique_ptr<RangeReader>> open(const std::string& name) override;
  Result<std::vector<DirectoryEntry>> list(const std::string& folder) override { return fs_.list(folder); }
  Result<std::vector<std::string>> unfinished(const std::string& folder) override;
  Result<FileStatus> status(const std::string& name) override { return fs_.stat(name); }
  Status remove(const std::string& name) override { return fs_.remove(name); }
  Status settle(const std::string& folder) override { return fs_.sync_directory(folder); }
  Result<std::unique_ptr<PowerWatch>> watch_power() override { return fs_.watch_power(); }
  Result<uint64_t> free_bytes(const std::string& folder) override { return fs_.free_bytes(folder); }
  std::string shown_path(const std::string& name) const override { return fs_.shown_path(name); }
  Status make_folder(const std::string& folder) override { return fs_.create_directory(folder); }
  Status remove_folder(const std::string& folder) override { return fs_.remove_directory(folder); }

 private:
  FileSystem& fs_;
  const std::string root_;
  FolderRecords records_{*this, fs_};
};

}  // namespace varve
