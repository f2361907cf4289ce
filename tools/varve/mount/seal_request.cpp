#include "mount/seal_request.h"

#include <fcntl.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>

#include "core/process.h"
#include "core/status_codec.h"

namespace varve {

namespace {
Result<std::string> request(const std::string& folder, unsigned what) {
  const UniqueFd descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!descriptor.valid()) return Status::from_errno(errno, "open folder", folder);
  SealMessage answer;
  if (::ioctl(descriptor.get(), what, &answer) != 0) {
    if (errno == ENOTTY || errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) {
      return Status::invalid_argument("this folder is in no mount of a store", folder,
                                      "`varve mount STORE DIR` makes one");
    }
    return Status::from_errno(errno, "ask the mount about", folder);
  }
  const ByteSpan content(answer.content, std::min<size_t>(answer.bytes, sizeof answer.content));
  if (answer.is_failure == 0) return std::string(as_text(content));
  Status failure;
  VARVE_TRY(decode_status(content, failure));
  if (!failure.subject().empty()) return failure;
  // The mount knows the folder by a number only.
  return failure.with_subject(folder);
}
}  // namespace

Status request_seal(const std::string& folder) { return request(folder, kSealRequest).status(); }
Result<std::string> request_set_state(const std::string& folder) { return request(folder, kStateRequest); }

}  // namespace varve
