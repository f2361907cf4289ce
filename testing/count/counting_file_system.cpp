#include "count/counting_file_system.h"

#include <algorithm>

namespace varve::count {

namespace {
size_t place_of(std::string_view path) {
  for (size_t place = 1; place < kStorePlaces.size(); ++place) {
    const size_t at = path.rfind(std::string("/") + std::string(kStorePlaces[place]));
    if (at == std::string_view::npos) continue;
    const std::string_view rest = path.substr(at + 1 + kStorePlaces[place].size());
    if (rest.empty() || rest.front() == '/') return place;
  }
  return 0;
}
}  // namespace

std::string_view verb_name(Verb verb) {
  switch (verb) {
    case Verb::open: return "open";
    case Verb::create: return "create";
    case Verb::list: return "list";
    case Verb::stat: return "stat";
    case Verb::rename: return "rename";
    case Verb::remove: return "remove";
    case Verb::make_folder: return "make folder";
    case Verb::sync_folder: return "sync folder";
    case Verb::touch: return "touch";
    case Verb::read: return "read";
    case Verb::write: return "write";
    case Verb::sync: return "sync";
  }
  return {};
}

uint64_t OperationCounts::of_verb(Verb verb) const {
  uint64_t sum = 0;
  for (const uint64_t count : of[static_cast<size_t>(verb)]) sum += count;
  return sum;
}

uint64_t OperationCounts::names() const {
  uint64_t sum = 0;
  for (size_t verb = 0; verb < kNameVerbs; ++verb) sum += of_verb(static_cast<Verb>(verb));
  return sum;
}

uint64_t OperationCounts::data() const {
  uint64_t sum = 0;
  for (size_t verb = kNameVerbs; verb < kVerbs; ++verb) sum += of_verb(static_cast<Verb>(verb));
  return sum;
}

OperationCounts& OperationCounts::operator+=(const OperationCounts& other) {
  for (size_t verb = 0; verb < kVerbs; ++verb) {
    for (size_t place = 0; place < kStorePlaces.size(); ++place) of[verb][place] += other.of[verb][place];
  }
  bytes_read += other.bytes_read;
  bytes_written += other.bytes_written;
  names_listed += other.names_listed;
  return *this;
}

OperationCounts OperationCounts::operator-(const OperationCounts& before) const {
  OperationCounts left = *this;
  for (size_t verb = 0; verb < kVerbs; ++verb) {
    for (size_t place = 0; place < kStorePlaces.size(); ++place) left.of[verb][place] -= before.of[verb][place];
  }
  left.bytes_read -= before.bytes_read;
  left.bytes_written -= before.bytes_written;
  left.names_listed -= before.names_listed;
  return left;
}

class CountingFileSystem::CountingFile final : public ForwardingFile {
 public:
  CountingFile(CountingFileSystem& files, std::unique_ptr<File> inner, std::string path)
      : ForwardingFile(std::move(inner)), files_(files), path_(std::move(path)) {}

  Result<size_t> read_at(uint64_t offset, MutableByteSpan into) override {
    files_.note(Verb::read, path_);
    files_.bytes_read_ += into.size();
    return ForwardingFile::read_at(offset, into);
  }
  Status write_at(uint64_t offset, ByteSpan from) override {
    files_.note(Verb::write, path_);
    files_.bytes_written_ += from.size();
    return ForwardingFile::write_at(offset, from);
  }
  Status sync() override {
    files_.note(Verb::sync, path_);
    return ForwardingFile::sync();
  }

 private:
  CountingFileSystem& files_;
  const std::string path_;
};

void CountingFileSystem::note(Verb verb, const std::string& path) {
  of_[static_cast<size_t>(verb)][place_of(path)].fetch_add(1, std::memory_order_relaxed);
}

OperationCounts CountingFileSystem::counts() const {
  OperationCounts counts;
  for (size_t verb = 0; verb < kVerbs; ++verb) {
    for (size_t place = 0; place < kStorePlaces.size(); ++place) counts.of[verb][place] = of_[verb][place];
  }
  counts.bytes_read = bytes_read_;
  counts.bytes_written = bytes_written_;
  counts.names_listed = names_listed_;
  return counts;
}

Result<std::unique_ptr<File>> CountingFileSystem::open_read(const std::string& path) {
  note(Verb::open, path);
  VARVE_ASSIGN(std::unique_ptr<File> inner, ForwardingFileSystem::open_read(path));
  return std::unique_ptr<File>(new CountingFile(*this, std::move(inner), path));
}

Result<std::unique_ptr<File>> CountingFileSystem::create(const std::string& path, CreateOptions options) {
  note(Verb::create, path);
  VARVE_ASSIGN(std::unique_ptr<File> inner, ForwardingFileSystem::create(path, options));
  return std::unique_ptr<File>(new CountingFile(*this, std::move(inner), path));
}

Status CountingFileSystem::create_directory(const std::string& path) {
  note(Verb::make_folder, path);
  return ForwardingFileSystem::create_directory(path);
}

Status CountingFileSystem::rename(const std::string& from, const std::string& to) {
  note(Verb::rename, to);
  return ForwardingFileSystem::rename(from, to);
}

Status CountingFileSystem::rename_no_replace(const std::string& from, const std::string& to) {
  note(Verb::rename, to);
  return ForwardingFileSystem::rename_no_replace(from, to);
}

Status CountingFileSystem::remove(const std::string& path) {
  note(Verb::remove, path);
  return ForwardingFileSystem::remove(path);
}

Status CountingFileSystem::remove_directory(const std::string& path) {
  note(Verb::remove, path);
  return ForwardingFileSystem::remove_directory(path);
}

Status CountingFileSystem::sync_directory(const std::string& path) {
  note(Verb::sync_folder, path);
  return ForwardingFileSystem::sync_directory(path);
}

Status CountingFileSystem::touch(const std::string& path) {
  note(Verb::touch, path);
  return ForwardingFileSystem::touch(path);
}

Result<std::vector<DirectoryEntry>> CountingFileSystem::list(const std::string& path) {
  note(Verb::list, path);
  auto entries = ForwardingFileSystem::list(path);
  if (entries.ok()) names_listed_ += entries->size();
  return entries;
}

Result<FileStatus> CountingFileSystem::stat(const std::string& path) {
  note(Verb::stat, path);
  return ForwardingFileSystem::stat(path);
}

}  // namespace varve::count
