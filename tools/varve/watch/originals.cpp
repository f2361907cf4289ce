#include "watch/originals.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "core/file_system.h"
#include "core/posix_file_system.h"
#include "core/process.h"
#include "engine/folder_scan.h"
#include "engine/restore_target.h"
#include "engine/save.h"

namespace varve {

namespace {
/// Each file has a descriptor with its lease meanwhile, and each folder two.
constexpr size_t kFilesAtOnce = 64, kDescriptorShare = 12;

bool is_as_found(const struct stat& status, const SourceFile& file) {
  return S_ISREG(status.st_mode) && static_cast<uint64_t>(status.st_size) == file.bytes &&
         status.st_mtim.tv_sec == file.modified_s && status.st_mtim.tv_nsec == file.modified_ns;
}

/// A folder that files leave for the kRemovingFolder in it, known by descriptors: a program may give it another path
/// meanwhile.
class LeftFolder {
 public:
  static Result<std::unique_ptr<LeftFolder>> open(const std::string& path) {
    auto left = std::make_unique<LeftFolder>();
    left->folder_ = UniqueFd(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!left->folder_.valid()) return failed_while_saved(errno, "open the folder", path);
    if (::mkdirat(left->folder_.get(), kRemovingFolder, 0700) != 0 && errno != EEXIST)
      return Status::from_errno(errno, "create the folder", join_path(path, kRemovingFolder));
    left->removing_ =
        UniqueFd(::openat(left->folder_.get(), kRemovingFolder, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!left->removing_.valid()) return Status::from_errno(errno, "open the folder", join_path(path, kRemovingFolder));
    return left;
  }
  LeftFolder() = default;
  LeftFolder(const LeftFolder&) = delete;
  LeftFolder& operator=(const LeftFolder&) = delete;
  ~LeftFolder() {
    if (folder_.valid()) ::unlinkat(folder_.get(), kRemovingFolder, AT_REMOVEDIR);
  }

  /// `errno`, 0 if it has its other name.
  int take_away(const std::string& name) const { return rename(folder_, removing_, name); }
  int give_back(const std::string& name) const { return rename(removing_, folder_, name); }
  /// Where files are that have left.
  int removing() const { return removing_.get(); }
  /// Its path as it is now, for people.
  std::string removing_path() const {
    std::error_code unknown;
    const std::filesystem::path path =
        std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(removing_.get()), unknown);
    return unknown ? kRemovingFolder : path.string();
  }

 private:
  static int rename(const UniqueFd& from, const UniqueFd& to, const std::string& name) {
    return rename_no_replace_at(from.get(), name.c_str(), to.get(), name.c_str());
  }

  UniqueFd folder_, removing_;
};

/// One file on its way out. Unless it was removed, it has its name again when this ends, if that can be.
class LeavingFile {
 public:
  LeavingFile(const std::string& folder, const SourceFile& file, uint32_t ordinal)
      : file_(file), ordinal_(ordinal), path_(join_path(folder, file.path)), name_(base_name(path_)) {}
  LeavingFile(LeavingFile&& other) noexcept = default;

  /// That nobody writes to it, and it is what was found.
  Status hold(const std::string& folder, const OriginalsRules& rules) {
    if (file_.type == FileType::symlink) return {};
    Result<ReadLease> lease = rules.take_lease(path_);
    if (lease.status().code() == StatusCode::unsupported && rules.known_to_be_closed) lease = ReadLease::without(path_);
    if (lease.status().code() == StatusCode::not_found) return changed_while_saved(path_);
    VARVE_TRY(lease.status());
    lease_ = std::move(*lease);
    VARVE_TRY(check_unchanged(folder, file_));
    struct stat status {};
    if (::fstat(lease_->descriptor(), &status) != 0) return Status::from_errno(errno, "look at", path_);
    if (!is_as_found(status, file_)) return changed_while_saved(path_);
    return rules.check_bytes(ordinal_);
  }

  std::string folder() const { return parent_path(path_); }

  Status leave_name(const LeftFolder& folder) {
    folder_ = &folder;
    const int error = folder.take_away(name_);
    if (error != 0) return failed_while_saved(error, "rename the file", path_);
    is_away_ = true;
    return {};
  }

  Status remove() {
    VARVE_TRY(check_still_the_same());
    if (::unlinkat(folder_->removing(), name_.c_str(), 0) != 0) return Status::from_errno(errno, "remove", path_);
    is_away_ = false;
    return {};
  }

  Status come_back() {
    if (!is_away_) return {};
    const int error = folder_->give_back(name_);
    if (error == ENOENT) return {};  // another watcher has given it its name
    if (error != 0)
      return Status::from_errno(error, "give it its name back", join_path(folder_->removing_path(), name_))
          .with_hint("it was changed while it was being removed, and has not got its name back");
    is_away_ = false;
    return {};
  }

 private:
  Status check_still_the_same() const {
    struct stat there {};
    if (::fstatat(folder_->removing(), name_.c_str(), &there, AT_SYMLINK_NOFOLLOW) != 0)
      return failed_while_saved(errno, "look at", path_);
    if (file_.type == FileType::symlink) {
      std::string target(file_.link_target.size() + 1, '\0');
      const ssize_t bytes = ::readlinkat(folder_->removing(), name_.c_str(), target.data(), target.size());
      const bool same =
          bytes == static_cast<ssize_t>(file_.link_target.size()) && target.starts_with(file_.link_target);
      return same ? Status() : changed_while_saved(path_);
    }
    struct stat held {};
    if (::fstat(lease_->descriptor(), &held) != 0) return Status::from_errno(errno, "look at", path_);
    const bool same = there.st_dev == held.st_dev && there.st_ino == held.st_ino && is_as_found(held, file_);
    // Last, since who writes has come to the lease before.
    return same && lease_->is_unbroken() ? Status() : changed_while_saved(path_);
  }

  const SourceFile& file_;
  uint32_t ordinal_;
  std::string path_, name_;
  const LeftFolder* folder_ = nullptr;
  std::optional<ReadLease> lease_;
  bool is_away_ = false;
};

using FileTime = std::pair<int64_t, uint32_t>;  ///< seconds since 1970, and nanoseconds

/// When a file was written: a time that a program gives a file itself does not count.
FileTime older_time_of(const SourceFile& file) {
  return std::min(FileTime(file.modified_s, file.modified_ns), FileTime(file.changed_s, file.changed_ns));
}

/// The note beside a set's files that some of them may be gone (find_removal_note()).
class RemovalNote {
 public:
  static Result<RemovalNote> open(const FoundSet& set, const std::string& job) {
    RemovalNote note(removal_note_name({job, set.step}), join_path(set.folder, removal_note_name({job, set.step})));
    for (const SourceFile& file : set.files) {
      if (file.type == FileType::regular) note.newest_ = std::max(note.newest_, older_time_of(file));
    }
    note.folder_ = UniqueFd(::open(set.folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!note.folder_.valid()) return failed_while_saved(errno, "open the folder", set.folder);
    return note;
  }
  RemovalNote(RemovalNote&& other) noexcept = default;
  ~RemovalNote() {
    if (folder_.valid() && is_needless_) ::unlinkat(folder_.get(), name_.c_str(), 0);
  }

  /// Before the first file goes: it is durable then.
  Status write() {
    if (written_) return {};
    const UniqueFd made(
        ::openat(folder_.get(), name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
    if (!made.valid() && errno != EEXIST) return Status::from_errno(errno, "create the file", path_);
    is_needless_ = made.valid();
    // One that was there may be older than files that a program has written since; then it would not count for them.
    // Nor would it where the clock has gone back since they were written.
    const UniqueFd there(
        made.valid() ? -1 : ::openat(folder_.get(), name_.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    const int note = made.valid() ? made.get() : there.get();
    if (note < 0 || ::futimens(note, nullptr) != 0 || !keep_up_with_files(note))
      return Status::from_errno(errno, "give a new time to", path_);
    // It has no bytes, so it is whole as soon as it has its name; one that was there may not be durable yet.
    if (::fsync(note) != 0) return Status::from_errno(errno, "make the file durable", path_);
    if (::fsync(folder_.get()) != 0) return Status::from_errno(errno, "make the file's name durable", path_);
    written_ = true;
    return {};
  }
  /// A file has gone: the note stays, however this ends.
  void keep() { is_needless_ = false; }
  /// All have gone, for good; and it does not come back when the power fails.
  Status remove() const {
    ::unlinkat(folder_.get(), name_.c_str(), 0);
    return ::fsync(folder_.get()) == 0 ? Status() : Status::from_errno(errno, "make the removal durable of", path_);
  }

 private:
  RemovalNote(std::string name, std::string path) : name_(std::move(name)), path_(std::move(path)) {}
  bool keep_up_with_files(int note) const {
    struct stat status {};
    if (::fstat(note, &status) != 0) return false;
    const FileTime now(status.st_mtim.tv_sec, static_cast<uint32_t>(status.st_mtim.tv_nsec));
    if (newest_ <= now) return true;
    const timespec times[2] = {{0, UTIME_OMIT},
                               {static_cast<time_t>(newest_.first), static_cast<long>(newest_.second)}};
    return ::futimens(note, times) == 0;
  }

  std::string name_, path_;
  FileTime newest_{};  ///< of the set's files
  UniqueFd folder_;
  bool written_ = false, is_needless_ = false;
};

/// A few files, all of which hold their leases at the same time.
Status remove_together(const FoundSet& set, std::span<const uint32_t> files, const OriginalsRules& rules,
                       RemovalNote& note) {
  std::map<std::string, std::unique_ptr<LeftFolder>> folders;
  std::vector<LeavingFile> leaving;
  for (const uint32_t file : files) {
    leaving.emplace_back(set.folder, set.files[file], file);
    VARVE_TRY(leaving.back().hold(set.folder, rules));
  }
  VARVE_TRY(note.write());
  auto leave = [&](LeavingFile& file) -> Status {
    std::unique_ptr<LeftFolder>& left = folders[file.folder()];
    if (left == nullptr) {
      VARVE_ASSIGN(left, LeftFolder::open(file.folder()));
    }
    return file.leave_name(*left);
  };
  Status outcome;
  for (LeavingFile& file : leaving) {
    if (outcome.ok()) outcome = leave(file);
  }
  if (outcome.ok()) rules.await_openers();
  for (LeavingFile& file : leaving) {
    if (outcome.ok()) outcome = file.remove();
    if (outcome.ok()) {
      note.keep();
      continue;
    }
    const Status back = file.come_back();
    if (!back.ok()) outcome = back;  // of all failures the one that somebody has to look at
  }
  return outcome;
}

/// What has gone from the set's folders does not come back when the power fails.
Status make_removal_durable(const FoundSet& set) {
  std::set<std::string> folders = {set.folder};
  for (const SourceFile& file : set.files) folders.insert(parent_path(join_path(set.folder, file.path)));
  for (const std::string& folder : folders) {
    const Status synced = posix_file_system().sync_directory(folder);
    if (synced.code() != StatusCode::not_found) VARVE_TRY(synced);  // that one has gone itself
  }
  return {};
}

/// Notes of whoever (the job may have had another name), if nothing else is in the folder: nothing is left of a set.
void remove_notes_alone(const std::string& folder) {
  const Result<std::vector<DirectoryEntry>> entries = posix_file_system().list(folder);
  if (!entries.ok()) return;
  const auto is_note = [](const DirectoryEntry& entry) { return is_removal_note(entry.name); };
  if (!std::all_of(entries->begin(), entries->end(), is_note)) return;
  for (const DirectoryEntry& entry : *entries) ::unlink(join_path(folder, entry.name).c_str());
}

/// Whether a program has written all of the files since, so that none is what a removal has left: that is older than
/// its note.
bool are_all_newer(const std::vector<SourceFile>& files, int64_t note_ns) {
  constexpr int64_t second_ns = 1'000'000'000;
  // A second later: file systems and clocks may differ by so much.
  const FileTime after(note_ns / second_ns + 1, static_cast<uint32_t>(note_ns % second_ns));
  bool any = false;
  for (const SourceFile& file : files) {
    if (file.type != FileType::regular) continue;
    any = true;
    if (older_time_of(file) <= after) return false;
  }
  return any;
}
}  // namespace

Status remove_originals(const std::string& watched_folder, const FoundSet& set, const std::string& job,
                        const OriginalsRules& rules) {
  std::vector<uint32_t> files;  // by their ordinals
  for (uint32_t i = 0; i < set.files.size(); ++i) {
    const SourceFile& file = set.files[i];
    if (file.type == FileType::regular) VARVE_TRY(check_unchanged(set.folder, file));
    if (file.type != FileType::directory) files.push_back(i);
  }
  VARVE_ASSIGN(RemovalNote note, RemovalNote::open(set, job));
  const size_t at_once = descriptors_for(kFilesAtOnce, kDescriptorShare);
  for (size_t at = 0; at < files.size(); at += at_once) {
    const size_t count = std::min(at_once, files.size() - at);
    VARVE_TRY(remove_together(set, std::span(files).subspan(at, count), rules, note));
  }
  // Sorted by path, so that the inner ones come last. What is not empty has something that is not the set's.
  for (auto file = set.files.rbegin(); file != set.files.rend(); ++file) {
    if (file->type == FileType::directory) ::rmdir(join_path(set.folder, file->path).c_str());
  }
  VARVE_TRY(make_removal_durable(set));
  VARVE_TRY(note.remove());
  if (set.folder == watched_folder) return {};
  remove_notes_alone(set.folder);
  ::rmdir(set.folder.c_str());
  return {};
}

Result<std::string> find_removal_note(const std::string& watched_folder, const FoundSet& set, const std::string& job) {
  VARVE_ASSIGN(const std::vector<DirectoryEntry> entries, posix_file_system().list(set.folder));
  // In a folder with several sets, those of this step count, whoever removes its files.
  const bool is_own = set.folder != watched_folder;
  const std::string of_step = "@" + step_text(set.step);
  const std::string wanted = removal_note_name({job, set.step});
  std::string counts;
  for (const DirectoryEntry& entry : entries) {
    const bool may_count = is_own || entry.name.ends_with(of_step);
    if (entry.name != wanted && !(may_count && is_removal_note(entry.name))) continue;
    const std::string path = join_path(set.folder, entry.name);
    const Result<FileStatus> note = posix_file_system().stat(path);
    if (note.status().code() == StatusCode::not_found) continue;
    VARVE_TRY(note.status());
    if (!are_all_newer(set.files, note->modified_ns)) {
      counts = entry.name;
    } else if (entry.name == wanted) {
      ::unlink(path.c_str());  // another job's may be for files that are not this set's
    }
  }
  return counts;
}

Result<std::string> find_restoring_note(const std::string& watched_folder, const FoundSet& set) {
  std::set<std::string> folders;
  for (const SourceFile& file : set.files) folders.insert(parent_path(join_path(set.folder, file.path)));
  for (std::string folder = set.folder;; folder = parent_path(folder)) {
    folders.insert(folder);
    if (!is_below(folder, watched_folder) || folder == watched_folder) break;
  }
  for (const std::string& folder : folders) {
    const std::string path = join_path(folder, std::string(kRestoringNote));
    const Result<FileStatus> note = posix_file_system().stat(path);
    if (note.status().code() == StatusCode::not_found) continue;
    VARVE_TRY(note.status());
    if (!are_all_newer(set.files, note->modified_ns)) return path;
  }
  return std::string();
}

bool put_back_unremoved(const std::string& folder, const std::vector<SourceFile>& files) {
  const std::string removing = kRemovingFolder;
  std::set<std::string> emptied;
  bool changed = false;
  for (const SourceFile& file : files) {
    const size_t slash = file.path.rfind('/');
    if (slash == std::string::npos || file.type == FileType::directory) continue;
    const std::string inner = file.path.substr(0, slash);
    if (inner != removing && !inner.ends_with("/" + removing)) continue;
    const std::string outer = inner.substr(0, inner.size() - removing.size());  // with its slash
    if (!posix_file_system()
             .rename_no_replace(join_path(folder, file.path), join_path(folder, outer + file.path.substr(slash + 1)))
             .ok())
      continue;
    changed = true;
    emptied.insert(inner);
  }
  for (const SourceFile& file : files) {
    const bool is_removing = file.path == removing || file.path.ends_with("/" + removing);
    if (file.type == FileType::directory && is_removing && ::rmdir(join_path(folder, file.path).c_str()) == 0)
      changed = true;
  }
  return changed;
}

}  // namespace varve
