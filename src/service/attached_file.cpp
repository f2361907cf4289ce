#include "service/attached_file.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "core/posix_file.h"

namespace varve {

std::unique_ptr<File> attached_file(const Reply& opened, const std::string& path, bool direct) {
  if (!opened.descriptor || !opened.descriptor->valid()) return nullptr;
  // A server that is not trusted might send anything that can be open.
  struct stat status {};
  const bool is_it = ::fstat(opened.descriptor->get(), &status) == 0 && S_ISREG(status.st_mode) &&
                     (uint64_t{major(status.st_dev)} << 32 | minor(status.st_dev)) == opened.identity.device &&
                     status.st_ino == opened.identity.inode;
  if (!is_it) return nullptr;
  return make_posix_file(path, std::move(*opened.descriptor), direct);
}

}  // namespace varve
