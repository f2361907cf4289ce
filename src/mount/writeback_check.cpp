#include "mount/writeback_check.h"

#include <fcntl.h>

#include <cerrno>
#include <filesystem>

#include "core/unique_fd.h"

namespace varve {

Status check_written_back(const std::string& folder) {
  std::error_code error;
  std::filesystem::recursive_directory_iterator below(folder, error), end;
  for (; !error && below != end; below.increment(error)) {
    if (!below->is_regular_file(error) || below->is_symlink(error)) continue;
    const UniqueFd file(::open(below->path().c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    if (!file.valid()) return Status::from_errno(errno, "open", below->path().string());
    // An error that nobody has seen is told to the next who asks.
    if (::sync_file_range(file.get(), 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE) != 0 && errno != ENOSYS)
      return Status::from_errno(errno, "write back", below->path().string());
  }
  return error ? Status::from_errno(error.value(), "list folder", folder) : Status();
}

}  // namespace varve
