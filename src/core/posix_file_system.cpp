#include "core/posix_file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <mutex>
#include <utility>

#include "core/file_system.h"
#include "core/process.h"
#include "core/sync.h"

namespace varve {

namespace {

/// Smaller reads are better served by the page cache and its read-ahead.
constexpr size_t kDirectReadBytesMin = 32_KiB;
/// A file that is written directly, and has become so long, has space for as much again set aside, or for the most,
/// where the file system has so many times as much left.
constexpr uint64_t kSetAsideBytesMin = 8_MiB, kSetAsideBytesMax = 32_MiB, kSetAsideTimesLeft = 32;

/// Calls `system_call` again as long as a signal interrupts it.
template <class Call>
auto retry_on_interrupt(Call system_call) {
  auto result = system_call();
  while (result == -1 && errno == EINTR) result = system_call();
  return result;
}

UniqueFd open_descriptor(const std::string& path, int flags, mode_t mode = 0) {
  return UniqueFd(retry_on_interrupt([&] { return ::open(path.c_str(), flags | O_CLOEXEC, mode); }));
}

bool set_direct(int descriptor, bool direct) {
  int flags = ::fcntl(descriptor, F_GETFL);
  if (flags < 0) return false;
  return ::fcntl(descriptor, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

bool is_direct_aligned(uint64_t offset, ByteSpan from) {
  return offset % kDirectAlignment == 0 && from.size() % kDirectAlignment == 0 &&
         reinterpret_cast<uintptr_t>(from.data()) % kDirectAlignment == 0;
}

/// Tells which parts of a file are in the page cache, without reading any: from a mapping that is never touched.
class CacheProbe {
 public:
  CacheProbe() = default;
  CacheProbe(const CacheProbe&) = delete;
  CacheProbe& operator=(const CacheProbe&) = delete;
  ~CacheProbe() {
    if (address_ != MAP_FAILED) ::munmap(address_, bytes_);
  }

  /// Not thread-safe. Where the file cannot be mapped, nothing is taken to be cached.
  void attach(int descriptor) {
    struct stat status {};
    if (::fstat(descriptor, &status) != 0 || status.st_size <= 0) return;
    bytes_ = static_cast<size_t>(status.st_size);
    address_ = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, descriptor, 0);
  }

  /// Whether all of the range is cached. Thread-safe. A block-aligned range; what lies past the file's end when it was
  /// attached is not cached.
  bool holds(uint64_t offset, size_t bytes) const {
    constexpr size_t kPageBytes = 4096;  // no system's pages are smaller
    if (address_ == MAP_FAILED || offset > bytes_ || bytes > bytes_ - offset) return false;
    std::vector<unsigned char> resident(bytes / kPageBytes + 1);
    if (::mincore(static_cast<char*>(address_) + offset, bytes, resident.data()) != 0) return false;
    const auto pages = static_cast<ptrdiff_t>(bytes / static_cast<size_t>(::sysconf(_SC_PAGESIZE)));
    return std::all_of(resident.begin(), resident.begin() + pages, [](unsigned char page) { return (page & 1) != 0; });
  }

 private:
  void* address_ = MAP_FAILED;
  size_t bytes_ = 0;
};

class PosixFile final : public File {
 public:
  /// `reopen_path`: by which the file is opened once more.
  PosixFile(std::string path, UniqueFd descriptor, std::string reopen_path)
      : path_(std::move(path)), descriptor_(std::move(descriptor)), reopen_path_(std::move(reopen_path)) {}

  /// Switches to O_DIRECT where the file system allows it. Reads, which need not be aligned, go through a second,
  /// buffered descriptor; the kernel keeps the two coherent.
  void make_direct() {
    aligned_only_ = true;
    UniqueFd reader = open_descriptor(reopen_path_, O_RDONLY);
    if (!reader.valid() || !set_direct(descriptor_.get(), true)) return;
    reader_ = std::move(reader);
  }

  Result<size_t> read_at(uint64_t offset, MutableByteSpan into) override {
    const int descriptor = reader_.valid() ? reader_.get() : descriptor_.get();
    size_t done = 0;
    const bool may_be_direct = into.size() >= kDirectReadBytesMin && is_direct_aligned(offset, into);
    if (may_be_direct && !reads_ahead_) done = read_direct(offset, into);
    while (done < into.size()) {
      ssize_t got = retry_on_interrupt([&] {
        return ::pread(descriptor, into.data() + done, into.size() - done, static_cast<off_t>(offset + done));
      });
      if (got < 0) return Status::from_errno(errno, "read from the file", path_);
      if (got == 0) break;
      done += static_cast<size_t>(got);
    }
    return done;
  }

  Result<size_t> read_parts(uint64_t offset, std::span<const MutableByteSpan> parts) override {
    std::array<iovec, 2> vectors{};
    if (parts.size() > vectors.size()) return File::read_parts(offset, parts);
    for (size_t i = 0; i < parts.size(); ++i) vectors[i] = {parts[i].data(), parts[i].size()};
    const int descriptor = reader_.valid() ? reader_.get() : descriptor_.get();
    const ssize_t got = retry_on_interrupt([&] {
      return ::preadv(descriptor, vectors.data(), static_cast<int>(parts.size()), static_cast<off_t>(offset));
    });
    if (got < 0) return Status::from_errno(errno, "read from the file", path_);
    // The system may give less than there is.
    const auto at_once = static_cast<uint64_t>(got);
    uint64_t done = 0, begin = 0;  // begin: of a part
    for (const MutableByteSpan part : parts) {
      const uint64_t here = std::clamp(at_once, begin, begin + part.size()) - begin;
      done += here;
      begin += part.size();
      if (here == part.size()) continue;
      VARVE_ASSIGN(const size_t more, read_at(offset + done, part.subspan(here)));
      done += more;
      if (here + more < part.size()) break;
    }
    return done;
  }

  Status write_at(uint64_t offset, ByteSpan from) override {
    if (poisoned_) return poisoned_status();
    if (aligned_only_ && !is_direct_aligned(offset, from)) {
      return Status::invalid_argument("a direct write is not aligned", path_);
    }
    bool may_leave_direct = reader_.valid();
    if (may_leave_direct) set_aside(offset, offset + from.size());
    size_t done = 0;
    while (done < from.size()) {
      ssize_t put = retry_on_interrupt([&] {
        return ::pwrite(descriptor_.get(), from.data() + done, from.size() - done, static_cast<off_t>(offset + done));
      });
      if (put < 0 && errno == EINVAL && may_leave_direct) {
        // A file system that accepts the flag but refuses the write, or the rest of a write that was cut short.
        may_leave_direct = false;
        if (set_direct(descriptor_.get(), false)) continue;
        errno = EINVAL;
      }
      if (put < 0) return Status::from_errno(errno, "write to the file", path_);
      if (put == 0) return Status::io_error("cannot write to the file: the system wrote nothing", path_);
      done += static_cast<size_t>(put);
    }
    return {};
  }

  /// A disk has two to write, while the processor copies and submits the next one.
  size_t writes_at_once() const override { return reader_.valid() ? 3 : 1; }

  Status truncate(uint64_t bytes) override {
    if (poisoned_) return poisoned_status();
    int failed = retry_on_interrupt([&] { return ::ftruncate(descriptor_.get(), static_cast<off_t>(bytes)); });
    return failed ? Status::from_errno(errno, "set the size of the file", path_) : Status();
  }

  Status sync() override {
    if (poisoned_) return poisoned_status();
    int failed = retry_on_interrupt([&] { return ::fdatasync(descriptor_.get()); });
    if (!failed) return {};
    poisoned_ = true;
    return Status::from_errno(errno, "make the file durable", path_);
  }

  Result<uint64_t> size() override {
    struct stat status {};
    if (::fstat(descriptor_.get(), &status) != 0) return Status::from_errno(errno, "get the size of the file", path_);
    return static_cast<uint64_t>(status.st_size);
  }

  void will_need(uint64_t offset, uint64_t bytes) override {
    const int descriptor = reader_.valid() ? reader_.get() : descriptor_.get();
    const int failed =
        ::posix_fadvise(descriptor, static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);
    if (failed == 0) reads_ahead_ = true;
  }

 private:
  /// Reads past the page cache: what is read once would only push out what is needed again. Returns how much of `into`
  /// is filled, in whole blocks; 0 if all of it is cached or the file system cannot, and the caller goes the ordinary
  /// way. (RWF_NOWAIT could tell what is cached, but starts read-ahead.)
  size_t read_direct(uint64_t offset, MutableByteSpan into) {
    std::call_once(direct_reader_opened_, [&] {
      direct_reader_ = open_descriptor(reopen_path_, O_RDONLY | O_DIRECT);
      if (direct_reader_.valid()) cache_probe_.attach(direct_reader_.get());
    });
    if (!direct_reader_.valid() || cache_probe_.holds(offset, into.size())) return 0;
    ssize_t got = retry_on_interrupt(
        [&] { return ::pread(direct_reader_.get(), into.data(), into.size(), static_cast<off_t>(offset)); });
    return got <= 0 ? 0 : static_cast<size_t>(got);
  }

  /// Makes the file longer than it is to become, with space for the bytes from `begin` to `end` and what comes next.
  /// ext4 and XFS let only one write at a time through that makes a file longer, and the others wait until it is done.
  /// A system that cannot is asked no more.
  void set_aside(uint64_t begin, uint64_t end) {
    if (end < kSetAsideBytesMin || end <= set_aside_end_ || end > INT64_MAX / 2) return;
    const MutexLock lock(set_aside_mutex_);
    if (end <= set_aside_end_) return;
    // What others are writing meanwhile lies before that, not far; a file that was opened again may be long already.
    const uint64_t more = std::min(end, kSetAsideBytesMax), next_end = end + more;
    const uint64_t from = std::max<uint64_t>(set_aside_end_, begin - std::min(begin, more));
    bool done = may_be_as_long(next_end) && leaves_enough(next_end - from);
    if (done && !allocate(from, next_end)) {
      // Of a quota, the system may have given what there was: others want it.
      (void)::fallocate(descriptor_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(end),
                        static_cast<off_t>(more));
      done = false;
    }
    set_aside_end_ = done ? next_end : UINT64_MAX;
  }
  bool allocate(uint64_t begin, uint64_t end) {
    return ::fallocate(descriptor_.get(), 0, static_cast<off_t>(begin), static_cast<off_t>(end - begin)) == 0;
  }
  /// A file beyond the process's limit would have the process killed.
  static bool may_be_as_long(uint64_t bytes) {
    rlimit limit{};
    return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes <= limit.rlim_cur;
  }
  /// Not in memory, where there is nothing to be gained by it.
  bool leaves_enough(uint64_t bytes) const {
    struct statfs left {};
    return ::fstatfs(descriptor_.get(), &left) == 0 && left.f_type != TMPFS_MAGIC &&
           bytes <= static_cast<uint64_t>(left.f_bavail) * static_cast<uint64_t>(left.f_bsize) / kSetAsideTimesLeft;
  }

  /// After a failed sync the kernel may have dropped the dirty pages and call the next sync a success.
  Status poisoned_status() const {
    return Status::io_error("the file was given up because an earlier sync of it failed", path_);
  }

  const std::string path_;
  UniqueFd descriptor_;
  const std::string reopen_path_;
  UniqueFd reader_;  ///< buffered; only beside a direct descriptor_
  std::once_flag direct_reader_opened_;
  UniqueFd direct_reader_;     ///< for large aligned reads; opened with the first
  CacheProbe cache_probe_;     ///< of direct_reader_
  bool aligned_only_ = false;  ///< created with `direct`, whether or not the file system went along
  std::atomic<bool> poisoned_{false};
  SystemMutex set_aside_mutex_;
  std::atomic<uint64_t> set_aside_end_{0};  ///< how long the file was made
  std::atomic<bool> reads_ahead_{false};    ///< into the page cache, which reads are not to go past
};

struct DirectoryCloser {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

class PosixFileSystem final : public FileSystem {
 public:
  Result<std::unique_ptr<File>> open_read(const std::string& path) override {
    VARVE_ASSIGN(UniqueFd descriptor, open_regular(path));
    return std::unique_ptr<File>(std::make_unique<PosixFile>(path, std::move(descriptor), path));
  }

  Result<std::unique_ptr<File>> create(const std::string& path, CreateOptions options) override {
    // O_DIRECT is set afterwards: open() with it may fail and yet leave the new file behind.
    UniqueFd descriptor = open_descriptor(path, O_RDWR | O_CREAT | O_EXCL, 0666);
    if (!descriptor.valid()) return Status::from_errno(errno, "create the file", path);
    auto file = std::make_unique<PosixFile>(path, std::move(descriptor), path);
    if (options.direct) file->make_direct();
    return std::unique_ptr<File>(std::move(file));
  }

  Status create_directory(const std::string& path) override {
    if (::mkdir(path.c_str(), 0777) == 0) return {};
    const int error = errno;
    struct stat status {};
    if (error == EEXIST && ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) return {};
    return Status::from_errno(error, "create the directory", path);
  }

  Status rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) == 0) return {};
    return Status::from_errno(errno, "rename the file to " + to, from);
  }

  Status rename_no_replace(const std::string& from, const std::string& to) override {
    const int error = rename_no_replace_at(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str());
    if (error == 0) return {};
    return Status::from_errno(error, "rename the file to " + to, error == EEXIST ? to : from);
  }

  Status remove(const std::string& path) override {
    return ::unlink(path.c_str()) == 0 ? Status() : Status::from_errno(errno, "remove the file", path);
  }

  Status remove_directory(const std::string& path) override {
    return ::rmdir(path.c_str()) == 0 ? Status() : Status::from_errno(errno, "remove the directory", path);
  }

  Status sync_directory(const std::string& path) override {
    UniqueFd descriptor = open_descriptor(path, O_RDONLY | O_DIRECTORY);
    if (!descriptor.valid()) return Status::from_errno(errno, "open the directory", path);
    int failed = retry_on_interrupt([&] { return ::fsync(descriptor.get()); });
    // EINVAL: a file system that keeps no directory state to sync (some FUSE and CIFS mounts).
    if (failed && errno != EINVAL) return Status::from_errno(errno, "make the directory durable", path);
    return {};
  }

  Result<uint64_t> free_bytes(const std::string& path) override {
    struct statvfs facts {};
    if (::statvfs(path.c_str(), &facts) != 0) return Status::from_errno(errno, "see how much room is left", path);
    return uint64_t{facts.f_bavail} * facts.f_frsize;
  }

  Status touch(const std::string& path) override {
    return ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0) == 0
               ? Status()
               : Status::from_errno(errno, "set the modification time of the file", path);
  }

  Result<std::vector<DirectoryEntry>> list(const std::string& path) override {
    std::unique_ptr<DIR, DirectoryCloser> directory(::opendir(path.c_str()));
    if (!directory) return Status::from_errno(errno, "open the directory", path);
    std::vector<DirectoryEntry> entries;
    for (;;) {
      errno = 0;
      const dirent* entry = ::readdir(directory.get());
      if (entry == nullptr) break;
      std::string_view name = entry->d_name;
      if (name == "." || name == "..") continue;
      bool is_directory = entry->d_type == DT_DIR;
      if (entry->d_type == DT_UNKNOWN) {
        struct stat status {};
        if (::fstatat(::dirfd(directory.get()), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
          if (errno == ENOENT) {  // removed since
            errno = 0;
            continue;
          }
          return Status::from_errno(errno, "look at the entry", join_path(path, name));
        }
        is_directory = S_ISDIR(status.st_mode);
      }
      entries.push_back({std::string(name), is_directory});
    }
    if (errno != 0) return Status::from_errno(errno, "list the directory", path);
    return entries;
  }

  Result<FileStatus> stat(const std::string& path) override {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) return Status::from_errno(errno, "get the status of the file", path);
    return FileStatus{.bytes = static_cast<uint64_t>(status.st_size),
                      .allocated_bytes = static_cast<uint64_t>(status.st_blocks) * 512,
                      .modified_ns = int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec,
                      .is_directory = S_ISDIR(status.st_mode)};
  }

 private:
  /// Only regular files: a FIFO would block, a device has no size. O_NONBLOCK lets even the open of a FIFO return.
  static Result<UniqueFd> open_regular(const std::string& path) {
    UniqueFd descriptor = open_descriptor(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (!descriptor.valid()) return Status::from_errno(errno, "open the file", path);
    struct stat status {};
    if (::fstat(descriptor.get(), &status) != 0) return Status::from_errno(errno, "open the file", path);
    if (!S_ISREG(status.st_mode)) return Status::invalid_argument("not a regular file", path);
    return descriptor;
  }
};

}  // namespace

bool lies_in_memory(const struct statfs& file_system) {
  switch (static_cast<uint32_t>(file_system.f_type)) {
    case TMPFS_MAGIC:
    case RAMFS_MAGIC:
    case HUGETLBFS_MAGIC: return true;
    default: return false;
  }
}

int rename_no_replace_at(int from_folder, const char* from, int to_folder, const char* to) {
  if (::renameat2(from_folder, from, to_folder, to, RENAME_NOREPLACE) == 0) return 0;
  // NFS and some parallel file systems lack the flag; link() refuses an existing name everywhere.
  return errno == EINVAL || errno == ENOSYS ? link_no_replace_at(from_folder, from, to_folder, to) : errno;
}

int link_no_replace_at(int from_folder, const char* from, int to_folder, const char* to) {
  if (::linkat(from_folder, from, to_folder, to, 0) != 0) {
    const int why = errno;
    // A request that a server had carried out, and got again as its answer was lost, meets the name that it has given.
    struct stat source = {}, there = {};
    const bool is_own = why == EEXIST && ::fstatat(from_folder, from, &source, AT_SYMLINK_NOFOLLOW) == 0 &&
                        ::fstatat(to_folder, to, &there, AT_SYMLINK_NOFOLLOW) == 0 && source.st_dev == there.st_dev &&
                        source.st_ino == there.st_ino;
    if (!is_own) return why;
  }
  // It has its name, which others see: an old one that cannot be removed, or was by somebody else, undoes nothing.
  ::unlinkat(from_folder, from, 0);
  return 0;
}

std::unique_ptr<File> make_posix_file(std::string path, UniqueFd descriptor, bool direct) {
  // By the descriptor itself: whatever its path has come to mean by then, it is the same file.
  std::string reopen_path = "/proc/self/fd/" + std::to_string(descriptor.get());
  auto file = std::make_unique<PosixFile>(std::move(path), std::move(descriptor), std::move(reopen_path));
  if (direct) file->make_direct();
  return file;
}

FileSystem& posix_file_system() {
  // As all that threads use: never destroyed. They may still be at work when the program ends by exit().
  static auto& file_system = *new PosixFileSystem;
  return file_system;
}

}  // namespace varve
