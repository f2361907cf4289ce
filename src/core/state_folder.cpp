#include "core/state_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "core/file_system.h"
#include "core/process.h"

namespace varve {

Result<std::string> state_folder() {
  const char* const state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && state[0] == '/') return join_path(state, "varve");
  const char* const home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') return join_path(home, ".local/state/varve");
  return Status::invalid_argument("there is no place for the state of programs", "",
                                  "set XDG_STATE_HOME or HOME in the environment");
}

Status replace_text_file(const std::string& path, std::string_view text, uint32_t mode) {
  const std::string draft = path + "." + std::to_string(::getpid()) + ".tmp";
  // In a folder where others write, too, nothing of theirs is written through.
  ::unlink(draft.c_str());
  const UniqueFd file(::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!file.valid()) return Status::from_errno(errno, "make", draft);
  Status replaced;
  for (size_t written = 0; replaced.ok() && written < text.size();) {
    const ssize_t now = ::write(file.get(), text.data() + written, text.size() - written);
    if (now >= 0) {
      written += static_cast<size_t>(now);
    } else if (errno != EINTR) {
      replaced = Status::from_errno(errno, "write", draft);
    }
  }
  if (replaced.ok() && ::rename(draft.c_str(), path.c_str()) != 0)
    replaced = Status::from_errno(errno, "rename to", path);
  if (!replaced.ok()) ::unlink(draft.c_str());
  return replaced;
}

}  // namespace varve
