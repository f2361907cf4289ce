#pragma once

struct fuse_lowlevel_ops;

namespace varve {

/// What libfuse calls for each request of the kernel; the user data of its session is the MountedStore.
const fuse_lowlevel_ops& fuse_operations();

}  // namespace varve
