#include "watch/folder_events.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/file_system.h"
#include "core/sync.h"

namespace varve {

namespace {
constexpr uint32_t kWanted = IN_CLOSE_WRITE | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ATTRIB |
                             IN_ONLYDIR | IN_DONT_FOLLOW | IN_EXCL_UNLINK;
}

Result<FolderEvents> FolderEvents::open() {
  UniqueFd queue(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!queue.valid()) return Status::from_errno(errno, "watch folders", "inotify");
  return FolderEvents(std::move(queue));
}

Status FolderEvents::add(const std::string& folder) {
  VARVE_TRY(add_one(folder));
  // What is made while we look is either seen here, or told as an event of its parent, which is watched already.
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code unknown;
    if (entry->symlink_status(unknown).type() != std::filesystem::file_type::directory) continue;
    const Status added = add(entry->path().string());
    if (added.code() != StatusCode::not_found) VARVE_TRY(added);
  }
  return {};
}

Status FolderEvents::add_one(const std::string& folder) {
  const int watch = ::inotify_add_watch(queue_.get(), folder.c_str(), kWanted);
  if (watch >= 0) {
    folders_[watch] = folder;
    return {};
  }
  if (errno == ENOSPC) {
    return Status(StatusCode::resource_limit, "the system watches no more folders", folder,
                  "raise fs.inotify.max_user_watches, or watch fewer folders");
  }
  return Status::from_errno(errno, "watch", folder);
}

FolderEvents::Changes FolderEvents::wait(std::chrono::milliseconds timeout) {
  Changes changes;
  if (wait_to_read(queue_.get(), timeout)) take(changes);
  return changes;
}

void FolderEvents::take(Changes& changes) {
  alignas(inotify_event) char buffer[64 * 1024];
  while (true) {
    const ssize_t got = ::read(queue_.get(), buffer, sizeof buffer);
    if (got <= 0) return;
    for (ssize_t at = 0; at + static_cast<ssize_t>(sizeof(inotify_event)) <= got;) {
      inotify_event event;
      std::memcpy(&event, buffer + at, sizeof event);
      const char* const name = buffer + at + sizeof event;
      at += static_cast<ssize_t>(sizeof event + event.len);
      if ((event.mask & IN_Q_OVERFLOW) != 0) changes.lost = true;
      const auto folder = folders_.find(event.wd);
      if (folder == folders_.end()) continue;
      changes.folders.push_back(folder->second);
      if ((event.mask & IN_IGNORED) != 0) {
        folders_.erase(folder);
      } else if ((event.mask & IN_ISDIR) != 0 && (event.mask & (IN_CREATE | IN_MOVED_TO)) != 0 && event.len > 0) {
        const std::string made = join_path(folder->second, name);
        changes.folders.push_back(made);
        // One that cannot be watched is looked at by and by.
        add(made).ignore("what is not told is found by looking");
      }
    }
  }
}

}  // namespace varve
