#include "core/faulty_file_system.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "core/memory_file_system.h"

namespace varve {

enum class FileOperation : uint8_t {
  create,
  write,
  truncate,
  sync_file,
  rename,
  create_directory,
  remove,
  sync_directory,
  touch,  // mutating
  open,
  read,
  size,
  list,
  stat,  // reading
};

namespace {

constexpr size_t kTraceLinesMax = 200;

const char* name_of(FaultKind kind) {
  switch (kind) {
    case FaultKind::crash: return "crash";
    case FaultKind::no_space: return "no space";
    case FaultKind::io_error: return "I/O error";
    case FaultKind::short_write: return "short write";
    case FaultKind::failed_sync: return "failed sync";
    case FaultKind::failed_rename: return "failed rename";
    case FaultKind::failed_read: return "failed read";
    case FaultKind::flipped_bit: return "flipped bit";
  }
  return "unknown fault";
}

const char* name_of(FileOperation operation) {
  switch (operation) {
    case FileOperation::create: return "create";
    case FileOperation::write: return "write";
    case FileOperation::truncate: return "truncate";
    case FileOperation::sync_file: return "sync";
    case FileOperation::rename: return "rename";
    case FileOperation::create_directory: return "create directory";
    case FileOperation::remove: return "remove";
    case FileOperation::sync_directory: return "sync directory";
    case FileOperation::touch: return "touch";
    case FileOperation::open: return "open";
    case FileOperation::read: return "read";
    case FileOperation::size: return "get size of";
    case FileOperation::list: return "list";
    case FileOperation::stat: return "get status of";
  }
  return "unknown";
}

bool is_reading(FileOperation operation) { return operation >= FileOperation::open; }

bool applies(FaultKind kind, FileOperation operation) {
  switch (kind) {
    case FaultKind::crash:
    case FaultKind::io_error: return !is_reading(operation);
    case FaultKind::no_space:
      return operation == FileOperation::create || operation == FileOperation::write ||
             operation == FileOperation::truncate || operation == FileOperation::create_directory ||
             operation == FileOperation::rename;
    case FaultKind::short_write: return operation == FileOperation::write;
    case FaultKind::failed_sync:
      return operation == FileOperation::sync_file || operation == FileOperation::sync_directory;
    case FaultKind::failed_rename: return operation == FileOperation::rename;
    case FaultKind::failed_read: return is_reading(operation);
    case FaultKind::flipped_bit: return operation == FileOperation::read;
  }
  return false;
}

Status crash_status(const std::string& subject) { return Status::io_error("simulated crash", subject); }

Status fault_status(FaultKind kind, const char* operation, const std::string& subject) {
  switch (kind) {
    case FaultKind::crash: return crash_status(subject);
    case FaultKind::no_space: return Status::from_errno(ENOSPC, operation, subject);
    case FaultKind::short_write: return Status::from_errno(ENOSPC, operation, subject);
    case FaultKind::io_error:
    case FaultKind::failed_sync:
    case FaultKind::failed_rename:
    case FaultKind::failed_read: return Status::from_errno(EIO, operation, subject);
    case FaultKind::flipped_bit: return {};
  }
  return Status::internal("unknown fault", subject);
}

void flip_bit(MutableByteSpan bytes, uint64_t draw) {
  if (bytes.empty()) return;
  bytes[draw / 8 % bytes.size()] ^= std::byte{1} << (draw % 8);
}

}  // namespace

class FaultyFileSystem::FaultyFile final : public File {
 public:
  FaultyFile(FaultyFileSystem& file_system, std::unique_ptr<File> inner, std::string path)
      : file_system_(file_system), inner_(std::move(inner)), path_(std::move(path)) {}

  Result<size_t> read_at(uint64_t offset, MutableByteSpan into) override {
    const Verdict verdict = file_system_.judge(FileOperation::read, describe(offset, into.size()));
    VARVE_TRY(verdict.status);
    VARVE_ASSIGN(size_t count, inner_->read_at(offset, into));
    if (verdict.struck) flip_bit(into.first(count), verdict.draw);
    return count;
  }

  Status write_at(uint64_t offset, ByteSpan from) override {
    const Verdict verdict = file_system_.judge(FileOperation::write, describe(offset, from.size()));
    if (verdict.struck && (verdict.kind == FaultKind::crash || verdict.kind == FaultKind::short_write)) {
      write_prefix(offset, from, verdict.draw);
    }
    VARVE_TRY(verdict.status);
    return inner_->write_at(offset, from);
  }

  Status truncate(uint64_t bytes) override {
    VARVE_TRY(file_system_.judge(FileOperation::truncate, fmt::format("{} to {}", path_, bytes)).status);
    return inner_->truncate(bytes);
  }

  Status sync() override {
    const Verdict verdict = file_system_.judge(FileOperation::sync_file, path_);
    if (verdict.struck && verdict.kind == FaultKind::failed_sync) {
      if (auto* lossy = dynamic_cast<LossyFile*>(inner_.get())) lossy->lose_unsynced();
    }
    VARVE_TRY(verdict.status);
    return inner_->sync();
  }

  Result<uint64_t> size() override {
    VARVE_TRY(file_system_.judge(FileOperation::size, path_).status);
    return inner_->size();
  }

 private:
  std::string describe(uint64_t offset, size_t bytes) const {
    return fmt::format("{} [{}, +{}]", path_, offset, bytes);
  }

  /// Lets some whole sectors through, from none to all but the last.
  void write_prefix(uint64_t offset, ByteSpan from, uint64_t draw) {
    const size_t first = kSectorBytes - offset % kSectorBytes;
    const size_t boundaries = from.size() > first ? 1 + (from.size() - first - 1) / kSectorBytes : 0;
    const size_t kept = draw % (boundaries + 1);
    if (kept == 0) return;
    const ByteSpan prefix = from.first(first + (kept - 1) * kSectorBytes);
    // A direct file takes only whole blocks; then the part that gets through is one of those.
    if (inner_->write_at(offset, prefix).ok()) return;
    inner_->write_at(offset, prefix.first(prefix.size() / kDirectAlignment * kDirectAlignment))
        .ignore("the write is going to fail anyway");
  }

  FaultyFileSystem& file_system_;
  const std::unique_ptr<File> inner_;
  const std::string path_;
};

FaultyFileSystem::FaultyFileSystem(FileSystem& inner, std::vector<Fault> faults)
    : inner_(inner), faults_(std::move(faults)) {}

FaultyFileSystem::OperationCount FaultyFileSystem::operation_count() const {
  const MutexLock lock(mutex_);
  return count_;
}

bool FaultyFileSystem::struck() const {
  const MutexLock lock(mutex_);
  return struck_;
}

bool FaultyFileSystem::crashed() const {
  const MutexLock lock(mutex_);
  return crashed_;
}

std::string FaultyFileSystem::trace() const {
  const MutexLock lock(mutex_);
  std::string text;
  for (const std::string& line : trace_) text += line + '\n';
  return text;
}

void FaultyFileSystem::record(uint64_t number, FileOperation operation, const std::string& subject,
                              const char* outcome) {
  if (trace_.size() == kTraceLinesMax) trace_.pop_front();
  trace_.push_back(fmt::format("{} {}: {} {}{}{}", is_reading(operation) ? "reading" : "mutating", number,
                               name_of(operation), subject, *outcome ? " -> " : "", outcome));
}

FaultyFileSystem::Verdict FaultyFileSystem::judge(FileOperation operation, const std::string& subject) {
  const MutexLock lock(mutex_);
  const uint64_t number = is_reading(operation) ? count_.reading++ : count_.mutating++;
  if (crashed_) {
    record(number, operation, subject, "after the crash");
    return {.status = crash_status(subject)};
  }
  for (auto fault = faults_.begin(); fault != faults_.end(); ++fault) {
    if (number < fault->at_operation || !applies(fault->kind, operation)) continue;
    const FaultKind kind = fault->kind;
    const uint64_t draw = std::mt19937_64(fault->seed ^ (number << 20))();
    if (!fault->persistent) faults_.erase(fault);
    crashed_ = kind == FaultKind::crash;
    struck_ = true;
    record(number, operation, subject, name_of(kind));
    return {.status = fault_status(kind, name_of(operation), subject), .struck = true, .kind = kind, .draw = draw};
  }
  record(number, operation, subject, "");
  return {};
}

Result<std::unique_ptr<File>> FaultyFileSystem::open_read(const std::string& path) {
  VARVE_TRY(judge(FileOperation::open, path).status);
  VARVE_ASSIGN(auto file, inner_.open_read(path));
  return std::unique_ptr<File>(std::make_unique<FaultyFile>(*this, std::move(file), path));
}

Result<std::unique_ptr<File>> FaultyFileSystem::create(const std::string& path, CreateOptions options) {
  VARVE_TRY(judge(FileOperation::create, path).status);
  VARVE_ASSIGN(auto file, inner_.create(path, options));
  return std::unique_ptr<File>(std::make_unique<FaultyFile>(*this, std::move(file), path));
}

Status FaultyFileSystem::create_directory(const std::string& path) {
  VARVE_TRY(judge(FileOperation::create_directory, path).status);
  return inner_.create_directory(path);
}

Status FaultyFileSystem::rename(const std::string& from, const std::string& to) {
  VARVE_TRY(judge(FileOperation::rename, from + " to " + to).status);
  return inner_.rename(from, to);
}

Status FaultyFileSystem::rename_no_replace(const std::string& from, const std::string& to) {
  VARVE_TRY(judge(FileOperation::rename, from + " to " + to + " unless it exists").status);
  return inner_.rename_no_replace(from, to);
}

Status FaultyFileSystem::remove(const std::string& path) {
  VARVE_TRY(judge(FileOperation::remove, path).status);
  return inner_.remove(path);
}

Status FaultyFileSystem::remove_directory(const std::string& path) {
  VARVE_TRY(judge(FileOperation::remove, path).status);
  return inner_.remove_directory(path);
}

Status FaultyFileSystem::sync_directory(const std::string& path) {
  VARVE_TRY(judge(FileOperation::sync_directory, path).status);
  return inner_.sync_directory(path);
}

Status FaultyFileSystem::touch(const std::string& path) {
  VARVE_TRY(judge(FileOperation::touch, path).status);
  return inner_.touch(path);
}

Result<std::vector<DirectoryEntry>> FaultyFileSystem::list(const std::string& path) {
  VARVE_TRY(judge(FileOperation::list, path).status);
  return inner_.list(path);
}

Result<FileStatus> FaultyFileSystem::stat(const std::string& path) {
  VARVE_TRY(judge(FileOperation::stat, path).status);
  return inner_.stat(path);
}

}  // namespace varve
