#include "cli/tar_output.h"

#include <archive.h>
#include <archive_entry.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/process.h"
#include "core/loaded_library.h"
#include "mount/stored_set.h"
#include "store/catalog.h"

namespace varve::cli {

namespace {
constexpr uint64_t kWindowBytes = 4_MiB;
constexpr size_t kReadAheadThreads = 4;
/// tar's own size of a block, so that what reads it need not be told.
constexpr int kBlockBytes = 10240;

/// The functions of libarchive, which is loaded where an archive is written: it draws in seven other libraries.
struct ArchiveLibrary : LoadedLibrary {
  explicit ArchiveLibrary(const LoadedLibrary& library) : LoadedLibrary(library) {}

  decltype(&::archive_entry_clear) entry_clear = find("archive_entry_clear");
  decltype(&::archive_entry_free) entry_free = find("archive_entry_free");
  decltype(&::archive_entry_new) entry_new = find("archive_entry_new");
  decltype(&::archive_entry_set_filetype) entry_set_filetype = find("archive_entry_set_filetype");
  decltype(&::archive_entry_set_mtime) entry_set_mtime = find("archive_entry_set_mtime");
  decltype(&::archive_entry_set_pathname) entry_set_pathname = find("archive_entry_set_pathname");
  decltype(&::archive_entry_set_perm) entry_set_perm = find("archive_entry_set_perm");
  decltype(&::archive_entry_set_size) entry_set_size = find("archive_entry_set_size");
  decltype(&::archive_entry_set_symlink) entry_set_symlink = find("archive_entry_set_symlink");
  decltype(&::archive_errno) error_number = find("archive_errno");
  decltype(&::archive_error_string) error_string = find("archive_error_string");
  decltype(&::archive_write_close) write_close = find("archive_write_close");
  decltype(&::archive_write_data) write_data = find("archive_write_data");
  decltype(&::archive_write_fail) write_fail = find("archive_write_fail");
  decltype(&::archive_write_free) write_free = find("archive_write_free");
  decltype(&::archive_write_header) write_header = find("archive_write_header");
  decltype(&::archive_write_new) write_new = find("archive_write_new");
  decltype(&::archive_write_open_fd) write_open_fd = find("archive_write_open_fd");
  decltype(&::archive_write_set_bytes_per_block) write_set_bytes_per_block = find("archive_write_set_bytes_per_block");
  decltype(&::archive_write_set_format_pax) write_set_format_pax = find("archive_write_set_format_pax");

  static Result<ArchiveLibrary> load() {
    return LoadedLibrary::load<ArchiveLibrary>("libarchive.so.13", "tar archive",
                                               "install libarchive (Debian: libarchive13)");
  }
};

class TarWriter {
 public:
  TarWriter(const ArchiveLibrary& library, const Store& store, SetName name, uint64_t memory_bytes,
            ProgressSink& progress)
      : library_(library),
        name_(std::move(name)),
        log_([this](const std::string& line) { failure_ = line; }),
        data_(store, log_, memory_bytes, kReadAheadThreads),
        progress_(progress),
        archive_(library_.write_new(), library_.write_free),
        entry_(library_.entry_new(), library_.entry_free),
        window_(kWindowBytes) {}

  Status begin() {
    if (archive_ == nullptr || entry_ == nullptr) return Status::resource_limit("there is no memory for an archive");
    VARVE_TRY(check(library_.write_set_format_pax(archive_.get())));
    VARVE_TRY(check(library_.write_set_bytes_per_block(archive_.get(), kBlockBytes)));
    return check(library_.write_open_fd(archive_.get(), STDOUT_FILENO));
  }

  Status add(const Leaf& leaf, const TreeFile& file) {
    VARVE_TRY(check_place(file));
    if (file.type != FileType::directory) return add_entry(leaf, file);
    // It may not be writable, and gets another time with each of its files, which may be in other groups: so it comes
    // when they are there.
    last_.push_back(file);
    return {};
  }

  Status end() {
    std::sort(last_.begin(), last_.end(),
              [](const TreeFile& a, const TreeFile& b) { return a.path > b.path; });  // the deepest first
    for (const TreeFile& folder : last_) VARVE_TRY(add_entry({}, folder));
    VARVE_TRY(check(library_.write_close(archive_.get())));
    ended_ = true;
    return {};
  }

  /// An archive that was not ended stays without an end: else libarchive would fill up what is missing with zeros.
  ~TarWriter() {
    if (!ended_ && archive_ != nullptr) library_.write_fail(archive_.get());
  }

 private:
  Status add_entry(const Leaf& leaf, const TreeFile& file) {
    archive_entry* const entry = library_.entry_clear(entry_.get());
    library_.entry_set_pathname(entry, file.path.c_str());
    library_.entry_set_perm(entry, mode_for_anyone(file.mode));
    set_time(entry, file);
    library_.entry_set_size(entry, 0);
    switch (file.type) {
      case FileType::directory: library_.entry_set_filetype(entry, AE_IFDIR); break;
      case FileType::symlink:
        library_.entry_set_filetype(entry, AE_IFLNK);
        library_.entry_set_symlink(entry, file.link_target.c_str());
        break;
      case FileType::regular:
        library_.entry_set_filetype(entry, AE_IFREG);
        library_.entry_set_size(entry, static_cast<int64_t>(file.bytes));
        break;
    }
    VARVE_TRY(check(library_.write_header(archive_.get(), entry)));
    return file.type == FileType::regular ? add_contents(leaf, file) : Status();
  }

  /// Before 1970, libarchive writes whole seconds and the fraction that is added to them one behind the other, and
  /// readers subtract it. In the last second before, there is no sign to tell them by, and the fraction is left out.
  void set_time(archive_entry* entry, const TreeFile& file) const {
    int64_t seconds = file.modified_s, nanoseconds = file.modified_ns;
    if (seconds < 0 && nanoseconds > 0) {
      nanoseconds = seconds < -1 ? 1'000'000'000 - nanoseconds : 0;
      seconds += seconds < -1 ? 1 : 0;
    }
    library_.entry_set_mtime(entry, static_cast<time_t>(seconds), static_cast<long>(nanoseconds));
  }

  /// Whoever unpacks it is not led out of his folder, whatever the set says.
  Status check_place(const TreeFile& file) {
    if (!path_is_safe(file.path)) return Status::corrupt("a path in the set leads elsewhere", file.path);
    if (!paths_.insert(file.path).second) return Status::corrupt("a set has two files of one name", file.path);
    for (std::string folder = parent_path(file.path); !folder.empty() && folder != "."; folder = parent_path(folder)) {
      if (links_.contains(folder)) return Status::corrupt("a file of the set lies behind a link of it", file.path);
      if (!folders_.insert(folder).second) break;
    }
    if (file.type != FileType::symlink) return {};
    links_.insert(file.path);
    return folders_.contains(file.path) ? Status::corrupt("a link of the set is a folder, too", file.path) : Status();
  }

  Status add_contents(const Leaf& leaf, const TreeFile& file) {
    VARVE_ASSIGN(FileMap map, map_file(leaf, file));
    StoredFile stored(std::make_shared<const FileMap>(std::move(map)), data_.packs, log_,
                      name_.to_string() + ":" + file.path);
    for (uint64_t at = 0; at < file.bytes;) {
      if (progress_.cancelled()) return Status::cancelled();
      const size_t bytes = static_cast<size_t>(std::min<uint64_t>(window_.size(), file.bytes - at));
      const MountResult<size_t> got = stored.read(at, MutableByteSpan(window_).first(bytes));
      if (!got.ok() || *got != bytes)
        return Status::corrupt(failure_.empty() ? "a file is cut off" : failure_, file.path);
      if (library_.write_data(archive_.get(), window_.data(), bytes) != static_cast<la_ssize_t>(bytes)) return failed();
      progress_.advance(bytes);
      at += bytes;
    }
    return {};
  }

  Status check(int outcome) const { return outcome >= ARCHIVE_WARN ? Status() : failed(); }
  Status failed() const {
    const int number = library_.error_number(archive_.get());
    const char* const why = library_.error_string(archive_.get());
    if (number > 0) return failed_standard_output(number);
    return Status::io_error(why != nullptr ? why : "cannot write the archive");
  }

  const ArchiveLibrary library_;
  const SetName name_;
  std::string failure_;  ///< the last that was logged
  const MountLog log_;
  StoredData data_;
  ProgressSink& progress_;
  const std::unique_ptr<archive, int (*)(archive*)> archive_;
  const std::unique_ptr<archive_entry, void (*)(archive_entry*)> entry_;
  ByteVector window_;
  std::set<std::string> paths_, folders_, links_;  ///< that are in it; folders are what files lie in
  std::vector<TreeFile> last_;                     ///< folders
  bool ended_ = false;
};
}  // namespace

Result<uint64_t> write_tar(const Store& store, const SetName& name, const FileFilter& filter, uint64_t memory_bytes,
                           ProgressSink& progress) {
  const Catalog catalog(store);
  VARVE_ASSIGN(const SetRecord record, catalog.read(name));
  progress.phase("writing");
  progress.total(record.raw_bytes);
  VARVE_ASSIGN(const ArchiveLibrary library, ArchiveLibrary::load());
  TarWriter tar(library, store, name, memory_bytes, progress);
  VARVE_TRY(tar.begin());
  IdlePatterns idle(filter);
  uint64_t count = 0;
  const Status written = for_each_leaf(store, record, [&](const Leaf& leaf) -> Status {
    for (const TreeFile& file : leaf.files) {
      if (!filter.matches(file)) continue;
      VARVE_TRY(tar.add(leaf, file));
      idle.note(file);
      ++count;
    }
    return {};
  });
  VARVE_TRY(catalog.unless_dropped(name, written));
  if (count == 0 && !filter.all()) return Status::not_found("no file of the set matches", name.to_string());
  VARVE_TRY(tar.end());
  for (const Status& warning : idle.warnings()) progress.warning(warning);
  return count;
}

}  // namespace varve::cli
