#include "mount/fuse_mount.h"

namespace varve {

Result<std::unique_ptr<FuseMount>> FuseMount::mount(MountedStore&, const FuseMountOptions&) {
  return check_available();
}

Status FuseMount::check_available() {
  return Status::unsupported("this build of Varve has no mount", "", "build it with VARVE_WITH_FUSE=ON and libfuse 3");
}

}  // namespace varve
