#include "runtime/switched_file_system.h"

#include "backend/backend.h"

namespace varve::test {

class SwitchedFileSystem::SwitchedFile final : public ForwardingFile {
 public:
  SwitchedFile(SwitchedFileSystem& files, std::unique_ptr<File> inner, std::string path)
      : ForwardingFile(std::move(inner)), files_(files), path_(std::move(path)) {}
  Status write_at(uint64_t offset, ByteSpan from) override {
    VARVE_TRY(files_.pass(path_));
    return ForwardingFile::write_at(offset, from);
  }

 private:
  SwitchedFileSystem& files_;
  const std::string path_;
};

void SwitchedFileSystem::set(Mode mode) {
  std::lock_guard lock(mutex_);
  mode_ = mode;
  changed_.notify_all();
}

void SwitchedFileSystem::await_held() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return held_ > 0; });
}

Status SwitchedFileSystem::pass(const std::string& path) {
  if (!path.starts_with(folder_)) return {};
  std::unique_lock lock(mutex_);
  ++held_;
  changed_.notify_all();
  changed_.wait(lock, [this] { return mode_ != Mode::held; });
  --held_;
  const bool full = mode_ == Mode::full || mode_ == Mode::full_until_freed;
  return full ? Status(StatusCode::no_space, "no space left on the device", path) : Status();
}

Result<std::unique_ptr<File>> SwitchedFileSystem::create(const std::string& path, CreateOptions options) {
  VARVE_TRY(pass(path));
  VARVE_ASSIGN(std::unique_ptr<File> inner, ForwardingFileSystem::create(path, options));
  return std::unique_ptr<File>(new SwitchedFile(*this, std::move(inner), path));
}

Status SwitchedFileSystem::create_directory(const std::string& path) {
  VARVE_TRY(pass(path));
  return ForwardingFileSystem::create_directory(path);
}

Status SwitchedFileSystem::rename(const std::string& from, const std::string& to) {
  VARVE_TRY(pass(to));
  return ForwardingFileSystem::rename(from, to);
}

Status SwitchedFileSystem::rename_no_replace(const std::string& from, const std::string& to) {
  VARVE_TRY(pass(to));
  return ForwardingFileSystem::rename_no_replace(from, to);
}

Status SwitchedFileSystem::remove(const std::string& path) {
  VARVE_TRY(ForwardingFileSystem::remove(path));
  std::lock_guard lock(mutex_);
  // What was never whole was never room that somebody had.
  if (mode_ == Mode::full_until_freed && path.starts_with(folder_) && !path.ends_with(kUnsealedSuffix))
    mode_ = Mode::normal;
  return {};
}

}  // namespace varve::test
