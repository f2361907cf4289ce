#include "engine/folder_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/file_system.h"
#include "core/open_writers.h"
#include "core/process.h"

namespace varve {

namespace {
/// All readers of this process together, as far as each has more than one.
constexpr size_t kSourceFilesMax = 512;
std::atomic<size_t> open_file_count{0};
constexpr size_t kSmallExtentBytes = 4096;
/// What a window may read in vain between two extents: about what a system call costs.
constexpr uint64_t kGapBytesMax = 4096;
constexpr size_t kWindowBytes = 64_KiB;
}  // namespace

SourceReader::SourceReader(std::string folder, const std::vector<SourceFile>& files)
    : folder_(std::move(folder)),
      files_(files),
      open_files_max_(descriptors_for(kSourceFilesMax, 4)),
      seen_(files.size()) {}

SourceReader::~SourceReader() { open_file_count -= open_.size(); }

Result<int> SourceReader::open(uint32_t file) {
  if (auto found = open_.find(file); found != open_.end()) {
    recently_used_.splice(recently_used_.begin(), recently_used_, found->second.used);
    return found->second.fd.get();
  }
  const std::string path = join_path(folder_, files_[file].path);
  // Nobody waits for who might write to what is a pipe by now.
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  if (!fd.valid()) return failed_while_saved(errno, "open", path);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return Status::from_errno(errno, "look at", path);
  if (!S_ISREG(status.st_mode)) return changed_while_saved(path);
  if (!seen_[file]) VARVE_TRY(look_first(file, fd.get(), status.st_dev, path));
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

void SourceReader::close(uint32_t file) {
  const auto found = open_.find(file);
  if (found == open_.end()) return;
  recently_used_.erase(found->second.used);
  open_.erase(found);
  --open_file_count;
}

void SourceReader::close_all() {
  open_file_count -= open_.size();
  recently_used_.clear();
  open_.clear();
}

Status SourceReader::look_first(uint32_t file, int descriptor, uint64_t device, const std::string& path) {
  VARVE_ASSIGN(const bool noticed, have_writes_noticed(descriptor, path));
  const auto known = devices_.find(device);
  const bool may_miss =
      known != devices_.end() ? known->second : (devices_[device] = times_may_miss_writes(descriptor));
  if (!noticed || may_miss) second_readings_[file];
  seen_[file] = true;
  return {};
}

Result<bool> SourceReader::notice(uint32_t file) {
  VARVE_TRY(open(file).status());
  return second_reading(file) == nullptr;
}

SecondReading* SourceReader::second_reading(uint32_t file) {
  if (second_readings_.empty()) return nullptr;
  const auto found = second_readings_.find(file);
  return found == second_readings_.end() ? nullptr : &found->second;
}

Status SourceReader::check_unnoticed(uint32_t file) {
  SecondReading* const reading = second_reading(file);
  if (reading == nullptr) return {};
  constexpr size_t reread_bytes = 1_MiB;
  if (reread_.size() == 0) reread_ = Buffer(reread_bytes);
  // Opened anew: on an overlay, what was opened before a program wrote to it is another file.
  close(file);
  VARVE_ASSIGN(const int fd, open(file));
  const std::string path = join_path(folder_, files_[file].path);
  VARVE_ASSIGN(const bool same, reading->is_the_same(fd, path, reread_));
  close(file);
  return same ? Status() : changed_while_saved(path);
}

Status SourceReader::check_unnoticed() {
  for (const auto& [file, reading] : second_readings_) VARVE_TRY(check_unnoticed(file));
  return {};
}

Status SourceReader::read(uint32_t file, uint64_t offset, MutableByteSpan into) {
  VARVE_ASSIGN(int fd, open(file));
  SecondReading* const again = second_reading(file);
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
    if (again != nullptr) again->add(at, to.first(got));
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
  if (SecondReading* const again = second_reading(file); again != nullptr) again->add_hole(hole_begin_, hole_end_);
  return std::min(hole_end_, end) - at;
}

namespace {
uint32_t sum_of(const Layout& layout) {
  ByteVector encoded;
  ByteWriter writer(encoded);
  encode_layout(layout, writer);
  return crc32c(encoded);
}
}  // namespace

/// Before their layouts are read: these and the bytes are to be of one state.
Status FolderSource::notice_files() {
  for (uint32_t i = 0; i < files_.size(); ++i) {
    if (files_[i].type != FileType::regular || files_[i].bytes == 0) continue;
    VARVE_ASSIGN(const bool noticed, reader_.notice(i));
    if (!noticed) unnoticed_layouts_[i] = 0;
  }
  return {};
}

/// Asked when all was read and nothing was read again yet. What is the same then as at first was so in the moment
/// between, of which the bytes are (SecondReading).
Status FolderSource::check_layouts() {
  std::vector<LayoutRequest> requests;
  for (const auto& [file, sum] : unnoticed_layouts_)
    requests.push_back({join_path(folder_, files_[file].path), files_[file].bytes});
  const std::vector<LayoutOutcome> outcomes = layouts_.read_many(requests, layout_options_);
  size_t next = 0;
  for (const auto& [file, sum] : unnoticed_layouts_) {
    if (sum_of(outcomes[next++].layout) != sum) return changed_while_saved(requests[next - 1].path);
  }
  return {};
}

Result<std::vector<Layout>> FolderSource::layouts(ProgressSink& progress) {
  VARVE_TRY(notice_files());
  std::vector<LayoutRequest> requests;
  for (const SourceFile& file : files_) {
    if (file.type == FileType::regular) requests.push_back({join_path(folder_, file.path), file.bytes});
  }
  std::vector<LayoutOutcome> outcomes = layouts_.read_many(requests, layout_options_);
  std::vector<Layout> layouts(files_.size());
  size_t next = 0;
  for (size_t i = 0; i < files_.size(); ++i) {
    if (files_[i].type != FileType::regular) continue;
    LayoutOutcome& outcome = outcomes[next++];
    if (outcome.warning) progress.warning(Status::corrupt(*outcome.warning));
    layouts[i] = std::move(outcome.layout);
    if (const auto unnoticed = unnoticed_layouts_.find(static_cast<uint32_t>(i)); unnoticed != unnoticed_layouts_.end())
      unnoticed->second = sum_of(layouts[i]);
  }
  return layouts;
}

Status FolderSource::check_unchanged() {
  VARVE_TRY(check_layouts());
  for (const SourceFile& file : files_) {
    if (file.type != FileType::symlink) VARVE_TRY(varve::check_unchanged(folder_, file, choice_));
  }
  VARVE_TRY(reader_.check_unnoticed());
  unnoticed_layouts_.clear();
  return {};
}

}  // namespace varve
