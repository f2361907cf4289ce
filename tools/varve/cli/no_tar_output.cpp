#include "cli/tar_output.h"

namespace varve::cli {

Result<uint64_t> write_tar(const Store&, const SetName&, const FileFilter&, uint64_t, ProgressSink&) {
  return Status::unsupported("this build writes no archives", "--tar",
                             "build it with VARVE_WITH_TAR=ON and libarchive");
}

}  // namespace varve::cli
