#include "snapshot/shared_segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <set>
#include <utility>

#include "core/huge_pages.h"
#include "core/posix_file_system.h"
#include "core/process.h"
#include "hash/score.h"

namespace varve {

namespace {

constexpr size_t kRunDigits = 32;

/// Not the best algorithm of this build, but the same in every build: jobs of two builds must meet, too.
Score hash_of(ByteSpan bytes) {
  const Result<ScoreFunction> sha256 = ScoreFunction::create(ScoreAlgorithm::sha256, 32);
  return (*sha256)(bytes);
}

}  // namespace

std::string make_job_key(std::string_view canonical_store_path, std::string_view job) {
  ByteVector text;
  ByteWriter out(text);
  out.text(canonical_store_path);
  out.text(job);
  constexpr size_t kKeyBytes = 8;
  return hash_of(text).hex(kKeyBytes);
}

std::string SegmentFamily::file_prefix() const { return fmt::format("varve-{}-{}-", user, job_key); }

std::vector<SegmentFamily> SegmentFamily::memory_places(const std::string& own_folder) const {
  std::vector<SegmentFamily> places{*this};
  std::set<std::pair<dev_t, ino_t>> known;
  const auto is_new = [&](const std::string& where) {
    struct stat info {};
    return ::stat(path_on_machine(where).c_str(), &info) == 0 && known.insert({info.st_dev, info.st_ino}).second;
  };
  (void)is_new(folder);
  for (const std::string& spill : spill_folders) {
    // Where this user may not look, nothing is this user's.
    const bool counts =
        spill == own_folder || (is_memory_folder(spill) && ::access(path_on_machine(spill).c_str(), R_OK | X_OK) == 0);
    if (!counts || !is_new(spill)) continue;
    SegmentFamily& place = places.emplace_back(*this);
    place.folder = spill;
    std::erase(place.spill_folders, spill);
  }
  return places;
}

std::string SegmentOwner::path(std::string_view what) const {
  return fmt::format("{}/{}{}-{}-{}", family.folder, family.file_prefix(), run.hex(), rank, what);
}

std::string SegmentOwner::slot_path(uint32_t slot) const { return path(fmt::format("slot{}", slot)); }

std::string SegmentOwner::grid_path(uint32_t grid) const { return path(fmt::format("grid-{}", grid)); }

std::vector<std::string> SegmentOwner::places_of(const std::string& path) const {
  std::vector<std::string> places = {path};
  for (const std::string& folder : family.spill_folders) places.push_back(folder + path.substr(path.rfind('/')));
  return places;
}

std::optional<SegmentName> parse_segment_name(const SegmentFamily& family, std::string_view file_name) {
  const std::string prefix = family.file_prefix();
  if (!file_name.starts_with(prefix)) return std::nullopt;
  file_name.remove_prefix(prefix.size());
  if (file_name.size() <= kRunDigits || file_name[kRunDigits] != '-') return std::nullopt;
  const Result<UniqueId> run = UniqueId::parse(file_name.substr(0, kRunDigits));
  if (!run.ok()) return std::nullopt;
  file_name.remove_prefix(kRunDigits + 1);

  SegmentName name;
  name.run = *run;
  const auto [end, failure] = std::from_chars(file_name.data(), file_name.data() + file_name.size(), name.rank);
  const auto digits = static_cast<size_t>(end - file_name.data());
  if (failure != std::errc() || digits + 1 >= file_name.size() || file_name[digits] != '-') return std::nullopt;
  name.what = file_name.substr(digits + 1);
  return name;
}

namespace {

/// Also on kernels before 5.14, whose headers lack it.
constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE

/// Where no memory can be had, there is no room, either: that may be had elsewhere.
Status as_no_space(const Status& failure) {
  return failure.code() == StatusCode::resource_limit ? failure.with_code(StatusCode::no_space) : failure;
}

/// Makes the file at least that large, with memory for the part.
Status allocate(int file, uint64_t offset, uint64_t bytes, const std::string& path) {
  int failure = EINTR;
  // A signal of the program's may interrupt it.
  while (failure == EINTR) failure = ::posix_fallocate(file, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  if (failure == 0) return {};
  const Status status =
      as_no_space(Status::from_errno(failure, fmt::format("allocate {} bytes of shared memory", bytes), path));
  if (status.code() != StatusCode::no_space) return status;
  return {status.code(), std::string(status.message()), path,
          "make the memory file system larger, or name another (shared_memory)"};
}

/// Asks for huge pages where the system gives them to who asks, and has all pages made now.
void touch(std::byte* data, uint64_t bytes) {
  if (bytes == 0) return;
  (void)::madvise(data, bytes, MADV_HUGEPAGE);
  if (::madvise(data, bytes, kPopulateWrite) == 0) return;
  const auto page_bytes = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  for (uint64_t at = 0; at < bytes; at += page_bytes) {
    auto* const touched = const_cast<volatile std::byte*>(data + at);
    *touched = *touched;
  }
}

}  // namespace

bool is_memory_folder(const std::string& folder) {
  struct statfs info {};
  return ::statfs(path_on_machine(folder).c_str(), &info) == 0 && lies_in_memory(info);
}

SharedSegment& SharedSegment::operator=(SharedSegment&& other) noexcept {
  if (this == &other) return *this;
  unmap();
  path_ = std::move(other.path_);
  file_ = std::move(other.file_);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  access_ = other.access_;
  return *this;
}

SharedSegment::~SharedSegment() { unmap(); }

void SharedSegment::unmap() {
  if (data_ != nullptr) ::munmap(data_, size_);
  data_ = nullptr;
  size_ = 0;
}

Status SharedSegment::map(uint64_t bytes) {
  const int protection = access_ == Access::read ? PROT_READ : PROT_READ | PROT_WRITE;
  void* const data = ::mmap(nullptr, bytes, protection, MAP_SHARED, file_.get(), 0);
  if (data == MAP_FAILED) return Status::from_errno(errno, "map", path_);
  unmap();
  data_ = static_cast<std::byte*>(data);
  size_ = bytes;
  return {};
}

Result<SharedSegment> SharedSegment::create_nameless(const std::string& path, uint64_t bytes, uint64_t mapped_bytes) {
  SharedSegment segment;
  segment.path_ = path_on_machine(path);
  segment.access_ = Access::read_write;
  const std::string folder = segment.path_.substr(0, segment.path_.rfind('/'));
  // It gets its name when it is whole (publish()); a process that dies before leaves nothing.
  segment.file_.reset(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!segment.file_.valid()) {
    if (errno == EOPNOTSUPP || errno == EISDIR) {
      return Status::unsupported("this folder's file system cannot hold shared memory", folder,
                                 "name a folder of a memory file system, such as /dev/shm, or of a local disk");
    }
    return Status::from_errno(errno, "make shared memory in", folder);
  }
  // For as long as this process, or one that it forked, has the file open: see creator_holds_lock().
  if (::flock(segment.file_.get(), LOCK_EX | LOCK_NB) != 0) return Status::from_errno(errno, "lock", path);
  VARVE_TRY(allocate(segment.file_.get(), 0, bytes, path));
  if (mapped_bytes > bytes && ::ftruncate(segment.file_.get(), static_cast<off_t>(mapped_bytes)) != 0)
    return Status::from_errno(errno, "make shared memory", path);
  VARVE_TRY(as_no_space(segment.map(mapped_bytes)));
  touch(segment.data_, bytes);
  return segment;
}

Status SharedSegment::take(uint64_t offset, uint64_t bytes) const {
  return allocate(file_.get(), offset, bytes, path_);
}

Status SharedSegment::publish() {
  const std::string nameless = fmt::format("/proc/self/fd/{}", file_.get());
  if (::linkat(AT_FDCWD, nameless.c_str(), AT_FDCWD, path_.c_str(), AT_SYMLINK_FOLLOW) != 0) {
    return Status::from_errno(errno, "name", path_);
  }
  return {};
}

Result<SharedSegment> SharedSegment::create_anywhere(std::span<const std::string> paths, uint64_t bytes) {
  Result<SharedSegment> made = Status::internal("no place for shared memory was named");
  for (const std::string& path : paths) {
    made = create(path, bytes);
    if (made.ok()) return made;
  }
  return made;
}

Result<SharedSegment> SharedSegment::open_first(std::span<const std::string> paths, Access access) {
  Result<SharedSegment> opened = Status::internal("no place of shared memory was named");
  for (const std::string& path : paths) {
    opened = open(path, access);
    if (opened.ok() || opened.status().code() != StatusCode::not_found) return opened;
  }
  return opened;
}

Result<SharedSegment> SharedSegment::open(const std::string& path, Access access) {
  SharedSegment segment;
  segment.path_ = path_on_machine(path);
  segment.access_ = access;
  const int mode = access == Access::read ? O_RDONLY : O_RDWR;
  // Anybody may make files in such folders: no links, no pipes that would make open() wait.
  segment.file_.reset(::open(segment.path_.c_str(), mode | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  const bool is_no_file = !segment.file_.valid() && (errno == ELOOP || errno == ENXIO);  // a link, a socket
  if (!segment.file_.valid() && !is_no_file) return Status::from_errno(errno, "open", path);
  struct stat info {};
  if (!is_no_file && ::fstat(segment.file_.get(), &info) != 0) return Status::from_errno(errno, "stat", path);
  if (is_no_file || !S_ISREG(info.st_mode) || info.st_uid != ::geteuid()) {
    return Status(StatusCode::permission_denied, "this is no shared memory of this user", path);
  }
  if (info.st_size <= 0) return Status::corrupt("shared memory of no size", path);
  VARVE_TRY(segment.map(static_cast<uint64_t>(info.st_size)));
  return segment;
}

Status SharedSegment::grow(uint64_t bytes) {
  if (bytes <= size_) return {};
  const uint64_t before = size_;
  VARVE_TRY(allocate(file_.get(), before, bytes - before, path_));
  VARVE_TRY(as_no_space(map(bytes)));
  touch(data_ + before, bytes - before);
  return {};
}

Status SharedSegment::follow_growth() {
  struct stat info {};
  if (::fstat(file_.get(), &info) != 0) return Status::from_errno(errno, "stat", path_);
  const auto bytes = static_cast<uint64_t>(info.st_size);
  return bytes > size_ ? map(bytes) : Status();
}

bool SharedSegment::creator_holds_lock() const {
  if (::flock(file_.get(), LOCK_SH | LOCK_NB) != 0) return true;
  (void)::flock(file_.get(), LOCK_UN);
  return false;
}

void SharedSegment::leave_pages() const {
  // Of a shared mapping, this drops the process's own page table entries alone; the pages are the file's.
  if (data_ != nullptr) (void)::madvise(data_, size_, MADV_DONTNEED);
}

void SharedSegment::leave_pages(ByteSpan part) const {
  const auto begin_at = reinterpret_cast<uintptr_t>(part.data()), mapped_at = reinterpret_cast<uintptr_t>(data_);
  const uintptr_t begin = std::max(begin_at, mapped_at), end = std::min(begin_at + part.size(), mapped_at + size_);
  if (begin >= end) return;
  // A huge page is left when the part that ends it is, with the one before, which somebody else may have looked at
  // again meanwhile. To leave it piece by piece would drop all of it each time, on all processors, for the next look to
  // map it again.
  const uintptr_t last = end == mapped_at + size_ ? end : end / kHugePageBytes * kHugePageBytes;
  const uintptr_t first =
      std::max(begin / kHugePageBytes * kHugePageBytes, mapped_at + kHugePageBytes) - kHugePageBytes;
  if (begin < last) (void)::madvise(data_ + (first - mapped_at), last - first, MADV_DONTNEED);
}

Status SharedSegment::unlink() const {
  if (path_.empty() || ::unlink(path_.c_str()) == 0 || errno == ENOENT) return {};
  return Status::from_errno(errno, "remove", path_);
}

}  // namespace varve
