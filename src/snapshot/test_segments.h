#pragma once

#include <dirent.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "snapshot/shared_segment.h"

namespace varve::test {

/// A job of its own in the machine's memory folder. At its end nothing of it may be left there.
class SegmentFolder {
 public:
  SegmentFolder() {
    const Result<UniqueId> id = UniqueId::random();
    EXPECT_TRUE(id.ok());
    family_ = {.folder = "/dev/shm", .user = ::getuid(), .job_key = make_job_key("test", id->hex())};
  }
  SegmentFolder(const SegmentFolder&) = delete;
  SegmentFolder& operator=(const SegmentFolder&) = delete;
  ~SegmentFolder() {
    if (::getpid() != creator_) return;
    EXPECT_EQ(files(), std::vector<std::string>()) << "left in the memory folder";
    clear();
  }

  const SegmentFamily& family() const { return family_; }
  SegmentOwner owner(uint32_t rank = 0) const { return {family_, run_, rank}; }
  SegmentOwner owner_in_new_run(uint32_t rank = 0) const {
    const Result<UniqueId> run = UniqueId::random();
    EXPECT_TRUE(run.ok());
    return {family_, *run, rank};
  }

  /// Of this job, in order.
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    DIR* const folder = ::opendir(family_.folder.c_str());
    while (const dirent* entry = ::readdir(folder)) {
      if (std::string_view(entry->d_name).starts_with(family_.file_prefix())) names.emplace_back(entry->d_name);
    }
    ::closedir(folder);
    std::sort(names.begin(), names.end());
    return names;
  }
  void clear() const {
    for (const std::string& name : files()) ::unlink((family_.folder + "/" + name).c_str());
  }

 private:
  pid_t creator_ = ::getpid();
  SegmentFamily family_;
  UniqueId run_ = *UniqueId::random();
};

/// Makes the folder a memory file system of that size, for this process and those that it forks.
inline bool mount_small_memory(const std::string& folder, const std::string& size) {
  const uid_t user = ::getuid();
  const gid_t group = ::getgid();
  if (::unshare(CLONE_NEWNS) != 0) {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream("/proc/self/uid_map") << user << " " << user << " 1";
    std::ofstream("/proc/self/gid_map") << group << " " << group << " 1";
  }
  return ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("tmpfs", folder.c_str(), "tmpfs", 0, ("size=" + size).c_str()) == 0;
}

/// Runs `body` in a process of its own, which ends without destructors, as a killed one does. Returns the wait status.
template <class Body>
int run_in_child(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      body();
    } catch (...) {
      ::_exit(99);  // or the child would go on with the tests
    }
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

}  // namespace varve::test
