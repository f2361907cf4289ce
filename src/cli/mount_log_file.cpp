#include "cli/mount_log_file.h"

#include <fcntl.h>
#include <syslog.h>
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
  auto file = std::make_shared<UniqueFd>(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!file->valid()) return Status::from_errno(errno, "open", path);
  return MountLog([file](const std::string& line) {
    // One call, so that lines of several threads do not mix. A log that cannot be written stops nothing.
    const std::string text = now_text() + " " + escape_text(line) + "\n";
    if (::write(file->get(), text.data(), text.size()) < 0) return;
  });
}

MountLog stderr_mount_log() {
  return [](const std::string& line) {
    const std::string text = "varve mount: " + escape_text(line) + "\n";
    if (::write(STDERR_FILENO, text.data(), text.size()) < 0) return;
  };
}

MountLog system_mount_log() {
  ::openlog("varve-mount", LOG_PID, LOG_USER);
  return [](const std::string& line) { ::syslog(LOG_NOTICE, "%s", escape_text(line).c_str()); };
}

}  // namespace varve::cli
