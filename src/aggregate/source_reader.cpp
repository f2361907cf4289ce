#include "aggregate/source_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "aggregate/source_tree.h"
#include "core/descriptor_limit.h"
#include "core/file_system.h"
#include "core/open_writers.h"

namespace varve {

namespace {
/// All readers of this process together, as far as each has more than one.
constexpr size_t kOpenFilesMax = 512;
std::atomic<size_t> open_file_count{0};
constexpr size_t kSmallExtentBytes = 4096;
/// What a window may read in vain between two extents: about what a system call costs.
constexpr uint64_t kGapBytesMax = 4096;
constexpr size_t kWindowBytes = 64_KiB;
}  // namespace

SourceReader::SourceReader(std::string folder, const std::vector<SourceFile>& files)
    : folder_(std::move(folder)),
      files_(files),
      open_files_max_(descriptors_for(kOpenFilesMax, 4)),
      seen_(files.size()) {}

SourceReader::~SourceReader() { open_file_count -= open_.size(); }

Result<int> SourceReader::open(uint32_t file) {
  if (auto found = open_.find(file); found != open_.end()) {
    recently_used_.splice(recently_used_.begin(), recently_used_, found->second.used);
    return found->second.fd.get();
  }
  const std::string path = join_path(folder_, files_[file].path);
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid()) return failed_while_saved(errno, "open", path);
  if (!seen_[file]) VARVE_TRY(have_writes_noticed(fd.get(), path));
  seen_[file] = true;
  while (!open_.empty() && open_file_count >= open_files_max_) {
    open_.erase(recently_used_.back());
    recently_used_.pop_back();
    --open_file_count;
  }
  ++open_file_count;
  recently_used_.push_front(file);
  const int raw = fd.get();
  open_.emplace(file, OpenFile{std::move(fd), recently_used_.begin()});
  return raw;
}

Status SourceReader::read(uint32_t file, uint64_t offset, MutableByteSpan into) {
  VARVE_ASSIGN(int fd, open(file));
  const std::string path = join_path(folder_, files_[file].path);
  auto read_some = [&](uint64_t at, MutableByteSpan to) -> Result<size_t> {
    size_t got = 0;
    while (got < to.size()) {
      ssize_t n = ::pread(fd, to.data() + got, to.size() - got, static_cast<off_t>(at + got));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return failed_while_saved(errno, "read", path);
      if (n == 0) break;
      got += static_cast<size_t>(n);
    }
    return got;
  };
  auto shrunk = [&] { return changed_while_saved(path); };
  if (into.size() >= kSmallExtentBytes) {
    VARVE_ASSIGN(size_t got, read_some(offset, into));
    return got == into.size() ? Status() : shrunk();
  }
  const bool in_window =
      window_file_ == file && offset >= window_offset_ && offset + into.size() <= window_offset_ + window_.size();
  const bool follows = small_file_ == file && offset >= small_end_ && offset - small_end_ <= kGapBytesMax;
  small_file_ = file;
  small_end_ = offset + into.size();
  if (!in_window && !follows) {
    VARVE_ASSIGN(size_t got, read_some(offset, into));
    return got == into.size() ? Status() : shrunk();
  }
  if (!in_window) {
    window_file_ = UINT32_MAX;
    window_.resize(kWindowBytes);
    VARVE_ASSIGN(size_t got, read_some(offset, window_));
    window_.resize(got);
    window_file_ = file;
    window_offset_ = offset;
    if (got < into.size()) return shrunk();
  }
  std::memcpy(into.data(), window_.data() + (offset - window_offset_), into.size());
  return {};
}

Result<uint64_t> SourceReader::hole_bytes(uint32_t file, uint64_t offset, uint64_t bytes_max) {
  const uint64_t at = offset, end = offset + bytes_max;
  if (hole_file_ == file && at >= hole_begin_ && at < hole_end_) return std::min(hole_end_, end) - at;
  VARVE_ASSIGN(int fd, open(file));
  off_t data = ::lseek(fd, static_cast<off_t>(at), SEEK_DATA);
  if (data < 0) {
    if (errno != ENXIO) return uint64_t{0};  // the file system cannot tell: read it all
    data = static_cast<off_t>(end);          // no data up to the end of the file
  }
  hole_file_ = file;
  hole_begin_ = at;
  hole_end_ = static_cast<uint64_t>(data);
  return std::min(hole_end_, end) - at;
}

}  // namespace varve
