#pragma once

#include <functional>
#include <memory>
#include <string>

#include "mount/mounted_store.h"
#include "varve/status.h"

struct fuse_lowlevel_ops;

namespace varve {

/// What libfuse calls for each request of the kernel; the user data of its session is the MountedStore.
const fuse_lowlevel_ops& fuse_operations();

}  // namespace varve

namespace varve {

struct FuseMountOptions {
  std::string folder;  ///< where; a folder that is there
  std::string source;  ///< what a list of mounts shows
  bool read_only = false;
  bool allow_other = false;   ///< other users may come in
  unsigned threads_max = 16;  ///< requests that are worked on at a time
};

/// A MountedStore as a file system of the kernel.
class FuseMount {
 public:
  /// unsupported: this build is without FUSE.
  static Status check_available();
  /// From now on programs that look into the folder wait for serve().
  static Result<std::unique_ptr<FuseMount>> mount(MountedStore& store, const FuseMountOptions& options);
  virtual ~FuseMount() = default;  ///< unmounts
  /// Answers programs until somebody unmounts the folder, or SIGTERM, SIGINT or SIGHUP comes.
  virtual Status serve() = 0;
};

}  // namespace varve
