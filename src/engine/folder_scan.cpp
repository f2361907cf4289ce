#include "engine/folder_scan.h"

#include <dirent.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

#include "core/file_system.h"
#include "core/process.h"
#include "engine/restore_target.h"
#include "hash/score.h"

namespace varve {

namespace {
Result<std::string> read_link(int directory, const char* name, const std::string& path) {
  char target[kPathBytesMax + 1];
  ssize_t length = ::readlinkat(directory, name, target, sizeof target);
  if (length < 0 && errno == EINVAL) return changed_while_saved(path);  // it is none any more
  if (length < 0) return failed_while_saved(errno, "read symbolic link", path);
  if (static_cast<size_t>(length) > kPathBytesMax)
    return Status::resource_limit("a symbolic link's target is too long", path);
  return std::string(target, static_cast<size_t>(length));
}

SourceFile describe(const struct stat& status, std::string path) {
  SourceFile file;
  file.path = std::move(path);
  file.mode = status.st_mode & 07777;
  file.modified_s = status.st_mtim.tv_sec;
  file.modified_ns = static_cast<uint32_t>(status.st_mtim.tv_nsec);
  file.changed_s = status.st_ctim.tv_sec;
  file.changed_ns = static_cast<uint32_t>(status.st_ctim.tv_nsec);
  if (S_ISDIR(status.st_mode)) {
    file.type = FileType::directory;
  } else if (S_ISLNK(status.st_mode)) {
    file.type = FileType::symlink;
  } else {
    file.bytes = static_cast<uint64_t>(status.st_size);
    file.sparse = static_cast<uint64_t>(status.st_blocks) * 512 < file.bytes;
  }
  return file;
}

/// Shell patterns, with those that have matched nothing yet.
class WatchedGlobs {
 public:
  explicit WatchedGlobs(std::vector<std::string> globs) : globs_(std::move(globs)), matched_(globs_.size()) {
    for (std::string& glob : globs_) {
      while (glob.size() > 1 && glob.ends_with('/')) glob.pop_back();
    }
  }
  bool empty() const { return globs_.empty(); }

  /// Whether any matches this very path.
  bool match(const std::string& path) {
    bool any = false;
    for (size_t i = 0; i < globs_.size(); ++i) {
      if (any && matched_[i]) continue;
      const std::string subject = is_of_paths(globs_[i]) ? path : base_name(path);
      if (::fnmatch(globs_[i].c_str(), subject.c_str(), FNM_PATHNAME) == 0) any = matched_[i] = true;
    }
    return any;
  }

  /// False: none can match what is below a folder that none matches.
  bool may_match_below(const std::string& folder) const {
    return std::any_of(globs_.begin(), globs_.end(),
                       [&](const std::string& glob) { return !is_of_paths(glob) || has_beginning(glob, folder); });
  }

  bool has_matched() const { return std::find(matched_.begin(), matched_.end(), true) != matched_.end(); }
  /// Of those that have matched nothing in `where`.
  void warn_of_idle_ones(const std::string& where, ProgressSink& progress) const {
    for (size_t i = 0; i < globs_.size(); ++i) {
      if (!matched_[i]) progress.warning(Status::not_found("the pattern matches nothing in " + where, globs_[i]));
    }
  }

 private:
  static bool is_of_paths(const std::string& glob) { return glob.find('/') != std::string::npos; }

  /// Whether the first components of a pattern of paths may match a folder's, each its own, and more come after them.
  static bool has_beginning(std::string_view glob, std::string_view folder) {
    while (true) {
      const size_t glob_end = glob.find('/'), folder_end = folder.find('/');
      const std::string component(glob.substr(0, glob_end));
      // A slash may be within brackets, or be escaped: then only fnmatch() knows, once it has a whole path.
      if (component.find_first_of("[\\") != std::string::npos) return true;
      if (glob_end == std::string_view::npos) return false;
      if (::fnmatch(component.c_str(), std::string(folder.substr(0, folder_end)).c_str(), 0) != 0) return false;
      if (folder_end == std::string_view::npos) return true;
      glob.remove_prefix(glob_end + 1);
      folder.remove_prefix(folder_end + 1);
    }
  }

  std::vector<std::string> globs_;
  std::vector<bool> matched_;
};

/// What a choice says of a path.
enum class Taking : uint8_t {
  nothing,     ///< left out, with all that is below
  some_below,  ///< left out; but if it is a folder, something that is below may be taken
  all,         ///< taken, with all that is below and not excluded
};

/// A FileChoice, as a folder is gone through.
class WatchedChoice {
 public:
  explicit WatchedChoice(const FileChoice& choice) : included_(choice.include), excluded_(choice.exclude) {}

  Taking of_saved_folder() const { return included_.empty() ? Taking::all : Taking::some_below; }

  /// Of what lies in a folder of which the choice says `above`, not `nothing`.
  Taking of_entry(const std::string& path, Taking above) {
    if (excluded_.match(path)) return Taking::nothing;
    const bool is_named = included_.match(path);  // in any case: so it is known of each pattern whether it has matched
    if (above == Taking::all || is_named || is_note(base_name(path))) return Taking::all;
    return included_.may_match_below(path) ? Taking::some_below : Taking::nothing;
  }

  /// Of a path of which nothing is known.
  Taking of(const std::string& path) {
    Taking taking = of_saved_folder();
    for (size_t end = 0; end != std::string::npos && taking != Taking::nothing;) {
      end = path.find('/', end + 1);
      taking = of_entry(path.substr(0, end), taking);
    }
    return taking;
  }

  /// Something was left out: what that holds is not known.
  void warn_of_idle_ones(bool some_left_out, ProgressSink& progress) const {
    const std::string all = "the folder";
    excluded_.warn_of_idle_ones(some_left_out ? all + " that is not left out anyway" : all, progress);
    included_.warn_of_idle_ones(excluded_.has_matched() ? all + " that is not excluded" : all, progress);
  }

 private:
  /// Who chooses some files of a folder is told, too, that these are not a whole set.
  static bool is_note(std::string_view name) { return is_removal_note(name) || name == kRestoringNote; }

  WatchedGlobs included_, excluded_;
};

/// Makes SourceFile::names_sum. The files' own times tell of most changes; but a symbolic link is looked at no more,
/// and another file of the same name may have got all times of the first on file systems on which a rename changes
/// none.
class NamesSum {
 public:
  void add(const std::string& name, const struct stat& status) {
    ByteVector entry;
    ByteWriter w(entry);
    w.text(name);
    w.varint(status.st_ino);
    w.varint(status.st_mode & S_IFMT);
    if (S_ISLNK(status.st_mode)) {
      w.signed_varint(status.st_ctim.tv_sec);
      w.varint(static_cast<uint64_t>(status.st_ctim.tv_nsec));
    }
    entries_.emplace_back(as_text(entry));
  }

  uint64_t take() && {
    std::sort(entries_.begin(), entries_.end());  // who lists a folder again may see another order
    std::string all;
    for (const std::string& entry : entries_) all += entry;
    return ScoreFunction::preferred()(as_bytes(all)).prefix();
  }

 private:
  std::vector<std::string> entries_;
};

class Scanner {
 public:
  Scanner(std::string folder, const FileChoice& choice, ProgressSink& progress)
      : folder_(std::move(folder)), takes_all_(choice.all()), choice_(choice), progress_(progress) {}

  /// All that is in the folder, and taken.
  Result<ChosenFiles> scan(size_t depth_max) && {
    ChosenFiles found;
    VARVE_ASSIGN(found.names_sum, scan_below("", choice_.of_saved_folder(), depth_max));
    if (!takes_all_) choice_.warn_of_idle_ones(some_left_out_, progress_);
    std::sort(files_.begin(), files_.end(), [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
    found.files = std::move(files_);
    found.some_left_out = some_left_out_;
    return found;
  }

  /// SourceFile::names_sum of a folder of these as it is now.
  Result<uint64_t> names_sum_of(const std::string& path) && {
    std::vector<FoundFolder> below;
    if (path == ".") return list("", choice_.of_saved_folder(), below);
    return list(path, choice_.of(path), below);
  }

 private:
  struct FoundFolder {
    SourceFile file;
    Taking taking;
  };

  /// Returns the folder's names_sum.
  Result<uint64_t> scan_below(const std::string& relative, Taking taking, size_t depth_max) {
    std::vector<FoundFolder> below;
    VARVE_ASSIGN(const uint64_t names_sum, list(relative, taking, below));
    for (FoundFolder& next : below) {
      const size_t count_before = files_.size();
      if (depth_max > 1) {
        VARVE_ASSIGN(next.file.names_sum, scan_below(next.file.path, next.taking, depth_max - 1));
      }
      // Folders stay if something that is in them does.
      if (next.taking == Taking::all || files_.size() > count_before) {
        files_.push_back(std::move(next.file));
      } else {
        some_left_out_ = true;
      }
    }
    return names_sum;
  }

  using OpenFolder = std::unique_ptr<DIR, int (*)(DIR*)>;
  Result<OpenFolder> open(const std::string& relative, const std::string& path) const {
    int raw_fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | (relative.empty() ? 0 : O_NOFOLLOW));
    if (raw_fd < 0 && relative.empty()) return Status::from_errno(errno, "open folder", path);
    if (raw_fd < 0) return failed_while_saved(errno, "open folder", path);
    OpenFolder directory(::fdopendir(raw_fd), ::closedir);
    if (directory == nullptr) {
      UniqueFd closed(raw_fd);
      return Status::from_errno(errno, "list folder", path);
    }
    return directory;
  }

  Result<uint64_t> list(const std::string& relative, Taking taking, std::vector<FoundFolder>& below) {
    const std::string path = relative.empty() ? folder_ : join_path(folder_, relative);
    VARVE_ASSIGN(const OpenFolder directory, open(relative, path));
    NamesSum names;
    errno = 0;
    while (const dirent* entry = ::readdir(directory.get())) {
      const std::string name = entry->d_name;
      if (name == "." || name == ".." || is_restore_staging(name)) continue;
      const std::string entry_path = join_path(relative, name);
      const Taking of_entry = choice_.of_entry(entry_path, taking);
      const bool may_be_folder = entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN;
      if (of_entry == Taking::all || (of_entry == Taking::some_below && may_be_folder)) {
        VARVE_TRY(add(::dirfd(directory.get()), name, entry_path, of_entry, names, below));
      } else {
        some_left_out_ = true;
      }
      errno = 0;
    }
    if (errno != 0) return Status::from_errno(errno, "list folder", path);
    return takes_all_ ? 0 : std::move(names).take();
  }

  Status add(int directory, const std::string& name, const std::string& entry_path, Taking taking, NamesSum& names,
             std::vector<FoundFolder>& below) {
    struct stat status {};
    const bool seen = ::fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
    if (!seen && (taking == Taking::all || errno != ENOENT))
      return failed_while_saved(errno, "look at", join_path(folder_, entry_path));
    if (taking != Taking::all && (!seen || !S_ISDIR(status.st_mode))) {
      some_left_out_ = true;
      return {};
    }
    if (!path_is_safe(entry_path)) return Status::resource_limit("a path is too long", join_path(folder_, entry_path));
    SourceFile file = describe(status, entry_path);
    if (S_ISLNK(status.st_mode)) {
      VARVE_ASSIGN(file.link_target, read_link(directory, name.c_str(), join_path(folder_, entry_path)));
    } else if (!S_ISDIR(status.st_mode) && !S_ISREG(status.st_mode)) {
      progress_.warning(Status::unsupported("left out, as it is neither a file, a folder nor a symbolic link",
                                            join_path(folder_, entry_path)));
      return {};
    }
    if (!takes_all_) names.add(name, status);
    if (S_ISDIR(status.st_mode)) {
      below.push_back({std::move(file), taking});
    } else {
      files_.push_back(std::move(file));
    }
    return {};
  }

  const std::string folder_;
  const bool takes_all_;
  WatchedChoice choice_;
  ProgressSink& progress_;
  std::vector<SourceFile> files_;
  bool some_left_out_ = false;
};
}  // namespace

bool may_take(const FileChoice& choice, const std::string& path) {
  return WatchedChoice(choice).of(path) != Taking::nothing;
}

Result<std::vector<SourceFile>> scan_source_tree(const std::string& folder, ProgressSink& progress, size_t depth_max) {
  VARVE_ASSIGN(ChosenFiles found, Scanner(folder, {}, progress).scan(depth_max));
  return std::move(found.files);
}

Result<ChosenFiles> scan_chosen_files(const std::string& folder, const FileChoice& choice, ProgressSink& progress) {
  return Scanner(folder, choice, progress).scan(SIZE_MAX);
}

Result<NamedSource> look_at_source(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return Status::from_errno(errno, "open", path);
  NamedSource named{.folder = path, .self = describe(status, ".")};
  if (S_ISDIR(status.st_mode)) return named;
  if (!S_ISREG(status.st_mode)) return Status::invalid_argument("neither a folder nor a file", path);
  std::error_code error;
  const std::filesystem::path file = std::filesystem::canonical(path, error);
  if (error) return Status::from_errno(error.value(), "find", path);
  named.folder = file.parent_path().string();
  named.self.path = file.filename().string();
  return named;
}

Status changed_while_saved(const std::string& path) {
  return Status::busy("it changed while it was being saved", path,
                      "nothing was committed; save again when the program has finished writing");
}

Status failed_while_saved(int error, std::string_view action, const std::string& path) {
  const bool gone = error == ENOENT || error == ENOTDIR || error == ELOOP || error == EISDIR;
  return gone ? changed_while_saved(path) : Status::from_errno(error, action, path);
}

Status check_unchanged(const std::string& folder, const SourceFile& file) { return check_unchanged(folder, file, {}); }

Status check_unchanged(const std::string& folder, const SourceFile& file, const FileChoice& choice) {
  hand_over();
  const std::string path = join_path(folder, file.path);
  struct statx status {};
  // Not from what a network file system remembers of it: another node may have written to it.
  const int flags = AT_SYMLINK_NOFOLLOW | AT_STATX_FORCE_SYNC;
  if (::statx(AT_FDCWD, path.c_str(), flags, STATX_BASIC_STATS, &status) != 0)
    return failed_while_saved(errno, "look at", path);
  const bool same_time = status.stx_mtime.tv_sec == file.modified_s && status.stx_mtime.tv_nsec == file.modified_ns;
  if (file.type == FileType::directory) {
    if (!S_ISDIR(status.stx_mode)) return changed_while_saved(path);
    if (same_time) return {};
    // Its time changes with the names in it. Where all of them are taken, it tells of every one.
    if (choice.all() || file.names_sum == 0) return changed_while_saved(path);
    VARVE_ASSIGN(const uint64_t names_sum, Scanner(folder, choice, null_progress()).names_sum_of(file.path));
    return names_sum == file.names_sum ? Status() : changed_while_saved(path);
  }
  const bool same = S_ISREG(status.stx_mode) && status.stx_size == file.bytes && same_time &&
                    status.stx_ctime.tv_sec == file.changed_s && status.stx_ctime.tv_nsec == file.changed_ns;
  return same ? Status() : changed_while_saved(path);
}

void let_times_pass(const std::vector<SourceFile>& files) {
  using std::chrono::nanoseconds, std::chrono::seconds;
  // Clocks of kernels tick every 10 ms at most. Where there are no fractions of a second, a file system has whole ones,
  // or even ones.
  constexpr nanoseconds kernel_tick = std::chrono::milliseconds(10), file_system_tick = seconds(2);
  const nanoseconds now = std::chrono::system_clock::now().time_since_epoch();
  nanoseconds end = now;
  for (const SourceFile& file : files) {
    for (const auto& [s, ns] : {std::pair(file.changed_s, file.changed_ns), {file.modified_s, file.modified_ns}}) {
      // What is not of this moment is older, or of another clock, of which nothing can be told.
      if (s < now / seconds(1) - 2 || s > now / seconds(1) + 2) continue;
      const nanoseconds tick = ns != 0 ? kernel_tick : s % 2 == 0 ? file_system_tick : seconds(1);
      const nanoseconds passed = seconds(s) + nanoseconds(ns) + tick;
      if (passed - now <= file_system_tick) end = std::max(end, passed);
    }
  }
  if (end > now) std::this_thread::sleep_for(end - now);
}

}  // namespace varve
