#include "cli/mount_log_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <memory>

#include "cli/text.h"
#include "core/unique_fd.h"

namespace varve::cli {

namespace {
std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts)};
}
}  // namespace

Result<MountLog> open_mount_log(const std::string& path) {
  auto descriptor = std::make_shared<UniqueFd>();
  if (path.empty()) {
    descriptor->reset(::dup(STDERR_FILENO));
  } else {
    descriptor->reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    if (!descriptor->valid()) return Status::from_errno(errno, "open", path);
  }
  return MountLog([descriptor, path](const std::string& line) {
    const std::string before = path.empty() ? "varve mount: " : now_text() + " ";
    // One call, so that lines of several threads do not mix. A log that cannot be written stops nothing.
    const std::string text = before + escape_text(line) + "\n";
    if (::write(descriptor->get(), text.data(), text.size()) < 0) return;
  });
}

}  // namespace varve::cli
