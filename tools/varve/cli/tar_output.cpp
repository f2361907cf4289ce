#include "cli/tar_output.h"

#include <archive.h>
#include <archive_entry.h>
#include <sys/stat.h>

#include <set>
#include <string>

#include "mount/stored_set.h"
#include "store/catalog.h"

namespace varve::cli {

namespace {
constexpr uint64_t kWindowBytes = 4_MiB;
constexpr size_t kReadAheadThreads = 4;
/// tar's own size of a block, so that what reads it need not be told.
constexpr int kBlockBytes = 10240;

class TarWriter {
 public:
  TarWriter(const Store& store, SetName name, uint64_t memory_bytes, ProgressSink& progress)
      : name_(std::move(name)),
        log_([this](const std::string& line) { failure_ = line; }),
        data_(store, log_, memory_bytes, kReadAheadThreads),
        progress_(progress),
        archive_(archive_write_new(), archive_write_free),
        entry_(archive_entry_new(), archive_entry_free),
        window_(kWindowBytes) {}

  Status begin(int descriptor) {
    if (archive_ == nullptr || entry_ == nullptr) return Status::resource_limit("there is no memory for an archive");
    VARVE_TRY(check(archive_write_set_format_pax(archive_.get())));
    VARVE_TRY(check(archive_write_set_bytes_per_block(archive_.get(), kBlockBytes)));
    return check(archive_write_open_fd(archive_.get(), descriptor));
  }

  Status add(const Leaf& leaf, const TreeFile& file) {
    VARVE_TRY(check_place(file));
    archive_entry* const entry = archive_entry_clear(entry_.get());
    archive_entry_set_pathname(entry, file.path.c_str());
    archive_entry_set_perm(entry, mode_for_anyone(file.mode));
    archive_entry_set_mtime(entry, static_cast<time_t>(file.modified_s), static_cast<long>(file.modified_ns));
    archive_entry_set_size(entry, 0);
    switch (file.type) {
      case FileType::directory: archive_entry_set_filetype(entry, AE_IFDIR); break;
      case FileType::symlink:
        archive_entry_set_filetype(entry, AE_IFLNK);
        archive_entry_set_symlink(entry, file.link_target.c_str());
        break;
      case FileType::regular:
        archive_entry_set_filetype(entry, AE_IFREG);
        archive_entry_set_size(entry, static_cast<int64_t>(file.bytes));
        break;
    }
    VARVE_TRY(check(archive_write_header(archive_.get(), entry)));
    return file.type == FileType::regular ? add_contents(leaf, file) : Status();
  }

  Status end() {
    VARVE_TRY(check(archive_write_close(archive_.get())));
    ended_ = true;
    return {};
  }

  /// An archive that was not ended stays without an end: else libarchive would fill up what is missing with zeros.
  ~TarWriter() {
    if (!ended_ && archive_ != nullptr) archive_write_fail(archive_.get());
  }

 private:
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
      if (archive_write_data(archive_.get(), window_.data(), bytes) != static_cast<la_ssize_t>(bytes)) return failed();
      progress_.advance(bytes);
      at += bytes;
    }
    return {};
  }

  Status check(int outcome) const { return outcome >= ARCHIVE_WARN ? Status() : failed(); }
  Status failed() const {
    const int number = archive_errno(archive_.get());
    const char* const why = archive_error_string(archive_.get());
    if (number > 0) return Status::from_errno(number, why != nullptr ? why : "cannot write the archive", "");
    return Status::io_error(why != nullptr ? why : "cannot write the archive");
  }

  const SetName name_;
  std::string failure_;  ///< the last that was logged
  const MountLog log_;
  StoredData data_;
  ProgressSink& progress_;
  const std::unique_ptr<archive, int (*)(archive*)> archive_;
  const std::unique_ptr<archive_entry, void (*)(archive_entry*)> entry_;
  ByteVector window_;
  std::set<std::string> paths_, folders_, links_;  ///< that are in it; folders are what files lie in
  bool ended_ = false;
};
}  // namespace

Result<uint64_t> write_tar(const Store& store, const SetName& name, const FileFilter& filter, int descriptor,
                           uint64_t memory_bytes, ProgressSink& progress) {
  const Catalog catalog(store);
  VARVE_ASSIGN(const SetRecord record, catalog.read(name));
  progress.phase("writing");
  progress.total(record.raw_bytes);
  TarWriter tar(store, name, memory_bytes, progress);
  VARVE_TRY(tar.begin(descriptor));
  uint64_t count = 0;
  const Status written = for_each_leaf(store, record, [&](const Leaf& leaf) -> Status {
    for (const TreeFile& file : leaf.files) {
      if (!filter.matches(file)) continue;
      VARVE_TRY(tar.add(leaf, file));
      ++count;
    }
    return {};
  });
  VARVE_TRY(catalog.unless_dropped(name, written));
  if (count == 0 && !filter.all()) return Status::not_found("no file of the set matches", name.to_string());
  VARVE_TRY(tar.end());
  return count;
}

}  // namespace varve::cli
