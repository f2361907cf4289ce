#include "watch/originals.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <set>
#include <span>

#include "core/file_system.h"
#include "core/process.h"
#include "core/sync.h"
#include "engine/source.h"

namespace varve {

namespace {
/// Each file has a descriptor with its lease meanwhile.
constexpr size_t kFilesAtOnce = 64;
/// A program that had found a file by its name just before that was taken away comes to its lease in this time: between
/// the two it waits for nothing.
constexpr std::chrono::milliseconds kOpenersArrive(20);

bool is_as_found(const struct stat& status, const SourceFile& file) {
  return S_ISREG(status.st_mode) && static_cast<uint64_t>(status.st_size) == file.bytes &&
         status.st_mtim.tv_sec == file.modified_s && status.st_mtim.tv_nsec == file.modified_ns;
}

/// One file on its way out. Unless it was removed, it has its name again when this ends, if that can be.
class LeavingFile {
 public:
  LeavingFile(const std::string& folder, const SourceFile& file)
      : file_(file),
        path_(join_path(folder, file.path)),
        removing_folder_(join_path(parent_path(path_), kRemovingFolder)),
        removing_path_(join_path(removing_folder_, base_name(path_))) {}
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
    return is_as_found(status, file_) ? Status() : changed_while_saved(path_);
  }

  Status leave_name() {
    if (::mkdir(removing_folder_.c_str(), 0700) != 0 && errno != EEXIST)
      return Status::from_errno(errno, "create the folder", removing_folder_);
    const Status left = posix_file_system().rename_no_replace(path_, removing_path_);
    if (left.code() == StatusCode::not_found) return changed_while_saved(path_);
    VARVE_TRY(left);
    is_away_ = true;
    return {};
  }

  Status remove() {
    VARVE_TRY(check_still_the_same());
    if (::unlink(removing_path_.c_str()) != 0) return Status::from_errno(errno, "remove", removing_path_);
    is_away_ = false;
    return {};
  }

  Status come_back() {
    if (!is_away_) return {};
    const Status back = posix_file_system().rename_no_replace(removing_path_, path_);
    if (back.code() == StatusCode::not_found) return {};  // another watcher has given it its name
    VARVE_TRY(back.with_hint("it was changed while it was being removed, and has not got its name back"));
    is_away_ = false;
    return {};
  }

  const std::string& removing_folder() const { return removing_folder_; }

 private:
  Status check_still_the_same() const {
    struct stat there {};
    if (::lstat(removing_path_.c_str(), &there) != 0) return failed_while_saved(errno, "look at", removing_path_);
    if (file_.type == FileType::symlink) {
      std::string target(file_.link_target.size() + 1, '\0');
      const ssize_t bytes = ::readlink(removing_path_.c_str(), target.data(), target.size());
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
  std::string path_, removing_folder_, removing_path_;
  std::optional<ReadLease> lease_;
  bool is_away_ = false;
};

/// A few files, all of which hold their leases at the same time.
Status remove_together(const std::string& folder, std::span<const SourceFile* const> files,
                       const OriginalsRules& rules) {
  std::vector<LeavingFile> leaving;
  Status outcome;
  auto first_failure = [&outcome](Status next) {
    if (outcome.ok()) outcome = std::move(next);
    return outcome.ok();
  };
  for (const SourceFile* file : files) {
    leaving.emplace_back(folder, *file);
    if (!first_failure(leaving.back().hold(folder, rules))) return outcome;
  }
  for (LeavingFile& file : leaving) {
    if (!first_failure(file.leave_name())) break;
  }
  if (outcome.ok()) sleep_for(kOpenersArrive);
  for (LeavingFile& file : leaving) {
    if (!outcome.ok() || !first_failure(file.remove())) {
      const Status back = file.come_back();
      if (!back.ok()) outcome = back;  // of all failures the one that somebody has to look at
    }
  }
  for (const LeavingFile& file : leaving) ::rmdir(file.removing_folder().c_str());
  return outcome;
}
}  // namespace

Status remove_originals(const std::string& watched_folder, const FoundSet& set, const OriginalsRules& rules) {
  std::vector<const SourceFile*> files;
  for (const SourceFile& file : set.files) {
    if (file.type == FileType::regular) VARVE_TRY(check_unchanged(set.folder, file));
    if (file.type != FileType::directory) files.push_back(&file);
  }
  const size_t at_once = descriptors_for(kFilesAtOnce, 4);
  for (size_t at = 0; at < files.size(); at += at_once) {
    const size_t count = std::min(at_once, files.size() - at);
    VARVE_TRY(remove_together(set.folder, std::span(files).subspan(at, count), rules));
  }
  // Sorted by path, so that the inner ones come last. What is not empty has something that is not the set's.
  for (auto file = set.files.rbegin(); file != set.files.rend(); ++file) {
    if (file->type == FileType::directory) ::rmdir(join_path(set.folder, file->path).c_str());
  }
  if (set.folder != watched_folder) ::rmdir(set.folder.c_str());
  return {};
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
