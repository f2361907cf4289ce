#include "mount/mounted_folder.h"

namespace varve {

Errno errno_of(const Status& status) {
  switch (status.code()) {
    case StatusCode::ok: return {0};
    case StatusCode::invalid_argument: return {EINVAL};
    case StatusCode::not_found: return {ENOENT};
    case StatusCode::already_exists: return {EEXIST};
    case StatusCode::no_space: return {ENOSPC};
    case StatusCode::permission_denied: return {EACCES};
    case StatusCode::unsupported: return {EOPNOTSUPP};
    case StatusCode::resource_limit: return {ENOMEM};
    case StatusCode::busy: return {EBUSY};
    case StatusCode::cancelled: return {EINTR};
    case StatusCode::corrupt:
    case StatusCode::io_error:
    case StatusCode::internal: return {EIO};
  }
  return {EIO};
}

}  // namespace varve
