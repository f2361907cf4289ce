#include "mount/writer_journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "core/file_system.h"

namespace varve {

namespace {
constexpr uint64_t kJournalBytesMax = 1_GiB;

std::set<uint64_t> read_left_open(std::string_view text) {
  std::set<uint64_t> open;
  while (!text.empty()) {
    const size_t line_end = text.find('\n');
    const std::string_view line = text.substr(0, line_end);
    uint64_t file = 0;
    if (line.size() > 1 && std::from_chars(line.data() + 1, line.data() + line.size(), file).ec == std::errc()) {
      if (line[0] == '+') open.insert(file);
      if (line[0] == '-') open.erase(file);
    }
    text = line_end == std::string_view::npos ? std::string_view() : text.substr(line_end + 1);
  }
  return open;
}
}  // namespace

Result<WriterJournal> WriterJournal::open(const std::string& path) {
  WriterJournal journal;
  journal.path_ = path;
  const Result<ByteVector> text = read_file(posix_file_system(), path, kJournalBytesMax);
  if (text.ok()) {
    journal.left_open_ = read_left_open(as_text(*text));
  } else if (text.status().code() != StatusCode::not_found) {
    return text.status();
  }
  journal.descriptor_.reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!journal.descriptor_.valid()) return Status::from_errno(errno, "open", path);
  return journal;
}

Status WriterJournal::append(char sign, uint64_t file) {
  const std::string line = sign + std::to_string(file) + "\n";
  ssize_t written = 0;
  do {
    written = ::write(descriptor_.get(), line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(line.size())) return {};
  return Status::from_errno(written < 0 ? errno : ENOSPC, "write", path_);
}

Status WriterJournal::begin(uint64_t file) {
  VARVE_TRY(append('+', file));
  ++writing_;
  return {};
}

void WriterJournal::end(uint64_t file) {
  append('-', file).ignore("the next mount takes the file for one that was being written");
  --writing_;
  // Nobody writes, so that the lines cancel each other: a job of many files shall not make it grow for ever.
  if (writing_ == 0 && left_open_.empty() && ::ftruncate(descriptor_.get(), 0) != 0) return;
}

}  // namespace varve
