#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/file_system.h"

namespace varve {

/// Passes everything on to another file: what a decorator does not change.
class ForwardingFile : public File {
 public:
  explicit ForwardingFile(std::unique_ptr<File> inner) : inner_(std::move(inner)) {}

  Result<size_t> read_at(uint64_t offset, MutableByteSpan into) override { return inner_->read_at(offset, into); }
  Status write_at(uint64_t offset, ByteSpan from) override { return inner_->write_at(offset, from); }
  Status truncate(uint64_t bytes) override { return inner_->truncate(bytes); }
  Status sync() override { return inner_->sync(); }
  Result<uint64_t> size() override { return inner_->size(); }

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
