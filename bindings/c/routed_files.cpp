#include "routed_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace varve::c_binding {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFolderPrefix = "varve-files-";
constexpr std::string_view kLockName = "lock";

/// A file in memory, mapped as long as this lives.
class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping() {
    if (data_ != nullptr) ::munmap(data_, bytes_);
  }

  /// A file as it is.
  static Result<Mapping> of(const std::string& path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) {
      if (errno != ENOENT) return Status::from_errno(errno, "open", path);
      return Status::not_found("a file of the checkpoint was never written", path);
    }
    struct stat facts {};
    const bool known = ::fstat(file, &facts) == 0;
    return map(file, path, known, static_cast<uint64_t>(facts.st_size), PROT_READ);
  }
  /// A new one of that size.
  static Result<Mapping> make(const std::string& path, uint64_t bytes) {
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0) return Status::from_errno(errno, "make", path);
    // Room for all of it now: a mapping of a full file system would end the process.
    const int failure = bytes == 0 ? 0 : ::posix_fallocate(file, 0, static_cast<off_t>(bytes));
    if (failure != 0) errno = failure;
    return map(file, path, failure == 0, bytes, PROT_READ | PROT_WRITE);
  }

  std::span<std::byte> bytes() const { return {static_cast<std::byte*>(data_), bytes_}; }

 private:
  /// Closes `file`.
  static Result<Mapping> map(int file, const std::string& path, bool good, uint64_t bytes, int protection) {
    Mapping mapping;
    mapping.bytes_ = static_cast<size_t>(bytes);
    if (good && bytes > 0) {
      void* const mapped = ::mmap(nullptr, mapping.bytes_, protection, MAP_SHARED, file, 0);
      if (mapped == MAP_FAILED) good = false;
      if (good) mapping.data_ = mapped;
    }
    const int why = errno;
    ::close(file);
    if (!good) return Status::from_errno(why, "map", path);
    return mapping;
  }

  void* data_ = nullptr;
  size_t bytes_ = 0;
};

/// Unprotects what was protected for one call.
class Protection {
 public:
  explicit Protection(Session& session) : session_(session) {}
  Protection(const Protection&) = delete;
  Protection& operator=(const Protection&) = delete;
  ~Protection() {
    for (const std::string& name : names_) session_.unprotect(name).ignore("it was there");
  }
  Status add(const std::string& name, std::function<std::span<const std::byte>()> give,
             std::function<std::span<std::byte>(uint64_t)> make_room) {
    VARVE_TRY(session_.protect_vector(name, ElementType{}, std::move(give), std::move(make_room)));
    names_.push_back(name);
    return {};
  }
  /// Something that cannot be saved: the checkpoint of which it is a part fails where ranks agree on it.
  Status add_failure(const std::string& name, const Status& why) {
    VARVE_TRY(session_.protect(
        name, [why](std::vector<std::byte>&) { return why; }, [](std::span<const std::byte>) { return Status(); }));
    names_.push_back(name);
    return {};
  }

 private:
  Session& session_;
  std::vector<std::string> names_;
};

/// Whether an older checkpoint may do instead, as Session::restart() has it.
bool may_fall_back(const Status& failure) {
  return failure.code() == StatusCode::corrupt || failure.code() == StatusCode::io_error;
}

std::string variable_of(const std::string& name) { return std::string(kFileVariable) + name; }

/// What processes that are gone have left: nobody holds the lock of such a folder.
void remove_leftovers(const std::string& memory) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(memory, ignored)) {
    if (!entry.path().filename().string().starts_with(kFolderPrefix) || entry.is_symlink(ignored)) continue;
    const int lock = ::open((entry.path() / kLockName).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (lock < 0) continue;  // another user's, or just being made
    if (::flock(lock, LOCK_EX | LOCK_NB) == 0) fs::remove_all(entry.path(), ignored);
    ::close(lock);
  }
}

}  // namespace

std::string shared_memory_of(const Session& session) {
  constexpr std::string_view kKey = "\nshared_memory = \"";
  const std::string options = "\n" + session.effective_options();
  const size_t at = options.find(kKey);
  if (at == std::string::npos) return "/dev/shm";
  const size_t begin = at + kKey.size();
  return options.substr(begin, options.find('"', begin) - begin);
}

Result<std::unique_ptr<RoutedFiles>> RoutedFiles::make(const std::string& memory) {
  remove_leftovers(memory);
  // It gets its name when it is locked: others remove what nobody holds.
  std::string pattern = memory + "/varve-new-files-XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) return Status::from_errno(errno, "make", pattern);
  const std::string folder = memory + "/" + std::string(kFolderPrefix) + fs::path(pattern).filename().string();
  const int lock = ::open((pattern + "/" + std::string(kLockName)).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0 || ::flock(lock, LOCK_EX | LOCK_NB) != 0 || ::rename(pattern.c_str(), folder.c_str()) != 0) {
    const Status why = Status::from_errno(errno, "prepare", pattern);
    std::error_code ignored;
    fs::remove_all(pattern, ignored);
    if (lock >= 0) ::close(lock);
    return why;
  }
  return std::unique_ptr<RoutedFiles>(new RoutedFiles(folder, lock));
}

RoutedFiles::~RoutedFiles() {
  std::error_code ignored;
  if (::getpid() == owner_) fs::remove_all(folder_, ignored);
  ::close(lock_);
}

std::string RoutedFiles::path_of(uint64_t step, const std::string& name) const {
  return folder_ + "/" + std::to_string(step) + "/" + fs::path(name).relative_path().string();
}

Result<std::string> RoutedFiles::route(uint64_t step, const std::string& name) {
  const fs::path path = fs::path(name).relative_path();
  if (path.empty() || !path.has_filename() || path.filename() == "." || path.filename() == "..") {
    return Status::invalid_argument("this is no name of a file", name);
  }
  if (std::find(path.begin(), path.end(), "..") != path.end()) {
    return Status::invalid_argument("a file's name leads out of its folder", name);
  }
  const auto called = [&name](const File& file) { return file.name == name; };
  if (loaded_step_ == step) {
    const auto found = std::find_if(loaded_.begin(), loaded_.end(), called);
    if (found != loaded_.end()) return found->path;
    return Status::not_found("this rank has no such file in the checkpoint of step " + std::to_string(step), name);
  }
  std::vector<File>& files = routed_[step];
  const auto found = std::find_if(files.begin(), files.end(), called);
  if (found != files.end()) return found->path;
  File file{name, path_of(step, name)};
  const auto clash = [&file](const File& other) { return other.path == file.path; };
  if (std::any_of(files.begin(), files.end(), clash)) {
    return Status::invalid_argument("two names mean the same file", name);
  }
  std::error_code failure;
  fs::create_directories(fs::path(file.path).parent_path(), failure);
  if (failure) return Status::from_errno(failure.value(), "make the folder of", file.path);
  files.push_back(file);
  return file.path;
}

Status RoutedFiles::checkpoint(Session& session, uint64_t step, Persistence persistence) {
  std::vector<Mapping> mappings;
  Protection protection(session);
  const auto files = routed_.find(step);
  if (files != routed_.end()) {
    mappings.reserve(files->second.size());
    for (const File& file : files->second) {
      Result<Mapping> mapping = Mapping::of(file.path);
      if (!mapping.ok()) {
        VARVE_TRY(protection.add_failure(variable_of(file.name), mapping.status()));
        continue;
      }
      mappings.push_back(std::move(*mapping));
      const Mapping* const content = &mappings.back();
      VARVE_TRY(protection.add(
          variable_of(file.name), [content] { return content->bytes(); },
          [](uint64_t) { return std::span<std::byte>(); }));
    }
  }
  // Their names, so that a rank that has written none has something to save.
  std::string names;
  if (files != routed_.end()) {
    for (const File& file : files->second) names += file.name + "\n";
  }
  VARVE_TRY(protection.add(
      variable_of(""), [&names] { return std::as_bytes(std::span(names)); },
      [](uint64_t) { return std::span<std::byte>(); }));
  const Status done = session.checkpoint(step, persistence);
  // Refused, or a file was not there: the program may call again. Else it is on its way, whatever is said of those
  // before.
  if (done.code() == StatusCode::invalid_argument || done.code() == StatusCode::not_found) return done;
  forget_loaded();
  discard_up_to(step);
  return done;
}

void RoutedFiles::stand_at(std::optional<uint64_t> step) {
  if (loaded_step_ != step) forget_loaded();
}

void RoutedFiles::discard_up_to(uint64_t step) {
  const auto end = routed_.upper_bound(step);
  std::error_code ignored;
  for (auto one = routed_.begin(); one != end; ++one) {
    fs::remove_all(folder_ + "/" + std::to_string(one->first), ignored);
  }
  routed_.erase(routed_.begin(), end);
}

void RoutedFiles::forget_loaded() {
  std::error_code ignored;
  if (loaded_step_) fs::remove_all(folder_ + "/" + std::to_string(*loaded_step_), ignored);
  loaded_step_.reset();
  loaded_.clear();
}

Status RoutedFiles::load(Session& session, uint64_t step, const std::vector<std::string>& names, Status& own_failure) {
  forget_loaded();
  routed_.erase(step);
  std::vector<File> files;
  std::vector<std::unique_ptr<Mapping>> mappings(names.size());
  Protection protection(session);
  for (const std::string& name : names) {
    const Result<std::string> routed = route(step, name);
    if (!routed.ok()) own_failure = routed.status();
    const std::string path = routed.ok() ? *routed : std::string();
    std::unique_ptr<Mapping>* const mapping = &mappings[files.size()];
    files.push_back({name, path});
    // The session may save what it has loaded before it returns: that is what the file holds by then.
    const auto give = [mapping]() -> std::span<const std::byte> {
      if (*mapping == nullptr) return {};
      return (*mapping)->bytes();
    };
    VARVE_TRY(protection.add(variable_of(name), give, [mapping, path, &own_failure](uint64_t bytes) {
      mapping->reset();
      Result<Mapping> made = path.empty() ? Result<Mapping>(own_failure) : Mapping::make(path, bytes);
      if (!made.ok()) {
        if (own_failure.ok()) own_failure = made.status();
        // What runs this makes an error of it, on which the ranks agree.
        throw std::runtime_error(made.status().to_string());
      }
      *mapping = std::make_unique<Mapping>(std::move(*made));
      return (*mapping)->bytes();
    }));
  }
  std::vector<std::byte> list;  // which is known already
  VARVE_TRY(protection.add(
      variable_of(""), [&list] { return std::span<const std::byte>(list); },
      [&list](uint64_t bytes) {
        list.resize(bytes);
        return std::span(list);
      }));
  VARVE_TRY(session.redistribute(variable_of(""), Redistribution::ignore));
  routed_.erase(step);
  loaded_step_ = step;  // what is there is removed by the next call, also if this one fails
  VARVE_TRY(session.restart({.exactly = step}).status());
  loaded_ = std::move(files);
  return {};
}

namespace {
/// Whether a rank has had the file; one that there was not, if all had it: then they have to have had the same.
bool is_for_rank(const SavedVariable& file, uint32_t rank, uint32_t saved_ranks) {
  std::set<uint32_t> ranks;
  for (const SavedVariable::Part& part : file.parts) ranks.insert(part.rank);
  return rank < saved_ranks || saved_ranks == 0 ? ranks.contains(rank) : ranks.size() == saved_ranks;
}
}  // namespace

Result<std::optional<uint64_t>> RoutedFiles::restart(Session& session, uint32_t rank, const RestartChoice& choice,
                                                     std::deque<Status>& warnings) {
  // As Session::restart() does: a checkpoint on its way is one to restart from once it is there.
  session.wait().ignore("one that did not get there is not listed");
  VARVE_ASSIGN(const std::vector<RestartPoint> points, session.restart_points());
  std::vector<uint64_t> tried;
  std::vector<Status> passed_over;
  Status failure;
  for (const RestartPoint& point : points) {
    if (choice.at_most && point.step > *choice.at_most) continue;
    if (choice.exactly && point.step != *choice.exactly) continue;
    if (std::find(tried.begin(), tried.end(), point.step) != tried.end()) continue;
    tried.push_back(point.step);
    std::vector<std::string> names;
    const Result<std::vector<SavedVariable>> variables = session.saved_variables(point.step);
    if (variables.ok()) {
      for (const SavedVariable& variable : *variables) {
        if (variable.name.size() > kFileVariable.size() && variable.name.starts_with(kFileVariable) &&
            is_for_rank(variable, rank, point.rank_count)) {
          names.push_back(variable.name.substr(kFileVariable.size()));
        }
      }
    }
    Status own_failure;
    const Status done = variables.ok() ? load(session, point.step, names, own_failure) : variables.status();
    if (done.ok()) {
      warnings.insert(warnings.end(), passed_over.begin(), passed_over.end());
      return std::optional(point.step);
    }
    // All ranks go on to an older one, or none does.
    if (!may_fall_back(done)) return own_failure.ok() ? done : own_failure;
    passed_over.push_back(
        done.with_context("the checkpoint of step " + std::to_string(point.step) + " was passed over"));
    // Of several, the newest; and before all, one that may yet be read.
    if (failure.ok() || (failure.code() == StatusCode::corrupt && done.code() == StatusCode::io_error)) failure = done;
  }
  VARVE_TRY(failure);
  // There is none: the session says what that means.
  forget_loaded();
  return session.restart(choice);
}

}  // namespace varve::c_binding
