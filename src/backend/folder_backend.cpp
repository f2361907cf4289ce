#include "backend/folder_backend.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "backend/put_aside.h"
#include "core/buffer.h"
#include "core/unique_id.h"
#include "format/set_record.h"

namespace varve {

namespace {
constexpr uint64_t kComparedRecordBytesMax = 64_KiB;  // of one that is compared
constexpr std::string_view kArenaSuffix = ".arena";
}  // namespace

std::string unfinished_name(std::string_view name) {
  if (name.ends_with(kArenaSuffix)) name.remove_suffix(kArenaSuffix.size());
  return std::string(name) + std::string(kUnsealedSuffix);
}

Status make_folder_durably(Backend& backend, const std::string& folder) {
  VARVE_TRY(backend.make_folder(folder));
  return backend.settle(parent_path(folder));
}

Status Backend::remove_if_there(const std::string& name) {
  const Status removed = remove(name);
  return removed.code() == StatusCode::not_found ? Status() : removed;
}

Result<ByteVector> Backend::read_record(const std::string& name, uint64_t bytes_max) {
  VARVE_ASSIGN(const std::unique_ptr<RangeReader> object, open(name));
  return read_all(*object, bytes_max, name);
}

Result<std::map<std::string, Result<FileStatus>>> Backend::list_with_status(const std::string& folder) {
  VARVE_ASSIGN(const std::vector<DirectoryEntry> entries, list(folder));
  std::map<std::string, Result<FileStatus>> objects;
  for (const DirectoryEntry& entry : entries) {
    if (entry.is_directory) continue;
    Result<FileStatus> found = status(join_path(folder, entry.name));
    if (found.status().code() != StatusCode::not_found) objects.emplace(entry.name, std::move(found));
  }
  return objects;
}

Result<std::vector<std::string>> Backend::list_in_folders(const std::string& folder) {
  VARVE_ASSIGN(const std::vector<DirectoryEntry> entries, list(folder));
  std::vector<std::string> names;
  for (const DirectoryEntry& entry : entries) {
    if (!entry.is_directory) continue;
    const Result<std::vector<DirectoryEntry>> inside = list(join_path(folder, entry.name));
    if (inside.status().code() == StatusCode::not_found) continue;  // removed just now
    VARVE_TRY(inside.status());
    for (const DirectoryEntry& object : *inside) {
      if (!object.is_directory) names.push_back(join_path(entry.name, object.name));
    }
  }
  return names;
}

Status Backend::settle_with_folders(const std::string& folder) {
  VARVE_ASSIGN(const std::vector<DirectoryEntry> entries, list(folder));
  for (const DirectoryEntry& entry : entries) {
    if (!entry.is_directory) continue;
    const Status settled = settle(join_path(folder, entry.name));
    if (settled.code() != StatusCode::not_found) VARVE_TRY(settled);
  }
  return settle(folder);
}

namespace {
class FileObjectWriter final : public ObjectWriter {
 public:
  FileObjectWriter(FileSystem& fs, std::string name, std::unique_ptr<File> file, PutOptions options)
      : fs_(fs), name_(std::move(name)), file_(std::move(file)), options_(options) {}
  ~FileObjectWriter() override {
    file_.reset();
    if (!sealed_) fs_.remove(unfinished_name(name_)).ignore("prune removes leftovers of failed saves");
  }
  Status write_at(uint64_t offset, ByteSpan from) override { return file_->write_at(offset, from); }
  size_t writes_at_once() const override { return file_->writes_at_once(); }
  Result<size_t> read_at(uint64_t offset, MutableByteSpan into) override { return file_->read_at(offset, into); }
  Status seal(uint64_t bytes) override {
    if (options_.durable || options_.direct) VARVE_TRY(file_->truncate(bytes));
    if (options_.durable) VARVE_TRY(file_->sync());
    file_.reset();
    VARVE_TRY(fs_.rename_no_replace(unfinished_name(name_), name_));
    sealed_ = true;
    return {};
  }

 private:
  FileSystem& fs_;
  const std::string name_;
  std::unique_ptr<File> file_;
  const PutOptions options_;
  bool sealed_ = false;
};

class FileRecord final : public HeldRecord {
 public:
  FileRecord(FileSystem& fs, Backend& folder, std::string name, std::unique_ptr<File> file)
      : fs_(fs), folder_(folder), name_(std::move(name)), file_(std::move(file)) {}

  Status rewrite(ByteSpan contents) override {
    VARVE_TRY(file_->truncate(0));
    VARVE_TRY(file_->write_at(0, contents));
    return file_->sync();
  }

  Status become(const std::string& name, IfExists if_exists) override {
    Status renamed;
    for (int attempt = 0; attempt < 3; ++attempt) {
      if (attempt > 0) VARVE_TRY(make_folder_durably(folder_, parent_path(name)));
      renamed = if_exists == IfExists::replace ? fs_.rename(name_, name) : fs_.rename_no_replace(name_, name);
      // Missing is either the record, or the folder: nobody has made it yet, or somebody has tidied it away just now.
      if (renamed.code() != StatusCode::not_found || !fs_.stat(name_).ok()) break;
    }
    return renamed;
  }

 private:
  FileSystem& fs_;
  Backend& folder_;
  const std::string name_;
  const std::unique_ptr<File> file_;
};
}  // namespace

Result<std::unique_ptr<ObjectWriter>> FolderBackend::put(const std::string& name, PutOptions options) {
  VARVE_ASSIGN(std::unique_ptr<File> file, fs_.create(unfinished_name(name), {.direct = options.direct}));
  return std::unique_ptr<ObjectWriter>(std::make_unique<FileObjectWriter>(fs_, name, std::move(file), options));
}

Result<std::vector<std::string>> FolderBackend::unfinished(const std::string& folder) {
  const Result<std::vector<DirectoryEntry>> entries = fs_.list(folder);
  if (entries.status().code() == StatusCode::not_found) return std::vector<std::string>();
  VARVE_TRY(entries.status());
  std::vector<std::string> names;
  for (const DirectoryEntry& entry : *entries) {
    if (entry.name.ends_with(kUnsealedSuffix)) names.push_back(join_path(folder, entry.name));
  }
  return names;
}

Result<std::unique_ptr<RangeReader>> FolderBackend::open(const std::string& name) {
  VARVE_ASSIGN(std::unique_ptr<File> file, fs_.open_read(name));
  return std::unique_ptr<RangeReader>(std::move(file));
}

Status FolderRecords::publish(const std::string& name, ByteSpan contents) {
  const std::string folder = parent_path(name);
  const bool is_in_root = folder == parent_path(join_path(folder_.root(), "-"));  // however the root is spelled
  if (is_in_root) return create_file_durably(fs_, name, contents);
  VARVE_ASSIGN(const UniqueId id, UniqueId::random());
  return create_file_durably(fs_, name, contents, join_path(folder, id.hex() + ".tmp"));
}

Result<std::unique_ptr<HeldRecord>> FolderRecords::hold(const std::string& name, ByteSpan contents) {
  VARVE_ASSIGN(std::unique_ptr<File> file, fs_.create(name));
  const Status written = contents.empty() ? Status() : file->write_at(0, contents);
  if (!written.ok()) {
    fs_.remove(name).ignore("the first failure is the one to report");
    return written;
  }
  return std::unique_ptr<HeldRecord>(std::make_unique<FileRecord>(fs_, folder_, name, std::move(file)));
}

Status FolderRecords::remove_unchanged(const std::string& name, ByteSpan contents) {
  VARVE_ASSIGN(const UniqueId id, UniqueId::random());
  const std::string aside = join_path(parent_path(name), id.hex() + ".stale");
  const Status moved = fs_.rename(name, aside);
  if (moved.code() == StatusCode::not_found) return {};
  VARVE_TRY(moved);
  const Result<ByteVector> text = read_file(fs_, aside, kComparedRecordBytesMax);
  // Somebody has made it anew meanwhile, and it goes back. Should its maker miss it just now, that makes it anew.
  if (text.ok() && as_text(*text) != as_text(contents) && fs_.rename_no_replace(aside, name).ok()) return {};
  return folder_.remove_if_there(aside);  // a prune may have taken it for a leftover: it is as old as the record was
}

Result<bool> FolderRecords::remove_committed(const std::string& name, ByteSpan contents) {
  VARVE_ASSIGN(const std::string aside, PutAside::path_for(name, contents));
  const Status moved = fs_.rename(name, aside);
  if (!moved.ok()) {
    const Status is_aside = fs_.stat(aside).status();
    if (moved.code() != StatusCode::not_found) {
      if (is_aside.ok()) put_back(aside, name).ignore("the first failure is the one to report");
      return moved;
    }
    // Unless it was done, by a file system that was asked again as its answer was lost, there is none.
    if (is_aside.code() == StatusCode::not_found) return true;
    VARVE_TRY(is_aside);
  }
  const Result<ByteVector> there = read_file(fs_, aside, kSetRecordBytesMax);
  Status failure = there.status();
  if (there.ok() && as_text(*there) == as_text(contents)) {
    failure = folder_.remove_if_there(aside);
    if (failure.ok()) return true;
    // A server says so whose store is in a bucket, where it is another by now.
    if (failure.code() == StatusCode::busy) failure = {};
  }
  if (failure.code() == StatusCode::not_found) {
    // Somebody who looked for what is left of removals has given it its name back, or brought it to its end.
    const Status now = fs_.stat(name).status();
    if (now.code() == StatusCode::not_found) return true;
    VARVE_TRY(now);
    return false;
  }
  const Status back = put_back(aside, name);
  VARVE_TRY(failure);
  VARVE_TRY(back);
  return false;
}

Status FolderRecords::put_back(const std::string& aside, const std::string& name) {
  const Status back = fs_.rename_no_replace(aside, name);
  if (back.code() == StatusCode::not_found) return {};
  if (back.code() == StatusCode::already_exists) return folder_.remove_if_there(aside);
  VARVE_TRY(back.with_hint("a prune of the store gives it its name back"));
  return folder_.settle(parent_path(name));
}

Status FolderRecords::unhide(const std::string& folder, bool finish) {
  const auto entries = fs_.list(folder);
  if (entries.status().code() == StatusCode::not_found) return {};
  VARVE_TRY(entries.status());
  struct Hidden {
    int64_t made_ns;
    std::string path;
    PutAside aside;
  };
  std::vector<Hidden> hidden;
  for (const DirectoryEntry& entry : *entries) {
    const std::string path = join_path(folder, entry.name);
    std::optional<PutAside> aside = PutAside::parse(path);
    if (!aside) continue;
    const Result<FileStatus> status = fs_.stat(path);
    if (status.status().code() == StatusCode::not_found) continue;
    VARVE_TRY(status.status());
    hidden.push_back({status->modified_ns, path, *std::move(aside)});
  }
  // The newest first, if there should be two that had the same name.
  std::sort(hidden.begin(), hidden.end(), [](const Hidden& a, const Hidden& b) { return a.made_ns > b.made_ns; });
  for (const Hidden& one : hidden) {
    const Result<ByteVector> contents = read_file(fs_, one.path, kSetRecordBytesMax);
    if (contents.status().code() == StatusCode::not_found) continue;
    const bool goes = contents.ok() && one.aside.is_to_go(*contents);
    if (!goes) VARVE_TRY(put_back(one.path, one.aside.name));
    if (goes && finish) VARVE_TRY(folder_.remove_if_there(one.path));
  }
  return {};
}

Status FolderRecords::remove_hidden(const std::string& name) {
  const std::string folder = parent_path(name);
  const auto entries = fs_.list(folder);
  if (entries.status().code() == StatusCode::not_found) return {};
  VARVE_TRY(entries.status());
  for (const DirectoryEntry& entry : *entries) {
    const std::string path = join_path(folder, entry.name);
    const std::optional<PutAside> aside = PutAside::parse(path);
    if (aside && aside->name == name) VARVE_TRY(folder_.remove_if_there(path));
  }
  return {};
}

Status FolderRecords::confirm(const std::string& name, ByteSpan contents) {
  VARVE_ASSIGN(const ByteVector there, read_file(fs_, name, kSetRecordBytesMax));
  return as_text(there) == as_text(contents) ? Status() : Status::not_found("it is another one", name);
}

Result<int64_t> FolderRecords::now() {
  const std::string folder = join_path(folder_.root(), "index");  // where anybody may write, and nothing is missed
  VARVE_TRY(fs_.create_directory(folder));
  for (;;) {
    VARVE_ASSIGN(const UniqueId id, UniqueId::random());
    const std::string name = join_path(folder, id.hex() + std::string(kUnsealedSuffix));
    VARVE_TRY(fs_.create(name).status());
    const Result<FileStatus> stamped = fs_.stat(name);
    // A prune may have taken it for a leftover just now.
    if (stamped.status().code() == StatusCode::not_found) continue;
    VARVE_TRY(folder_.remove_if_there(name));
    VARVE_TRY(stamped.status());
    return stamped->modified_ns;
  }
}

}  // namespace varve
