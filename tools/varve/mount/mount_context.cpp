#include "mount/mount_context.h"

#include <chrono>
#include <ctime>

#include "core/step_text.h"

namespace varve {

namespace {
constexpr double kLookSeconds = 0.5;
}  // namespace

uint32_t Realms::take_number() {
  const MutexLock lock(mutex_);
  return next_++;
}

void Realms::set(uint32_t number, Realm realm) {
  const MutexLock lock(mutex_);
  realms_[number] = std::move(realm);
}

MountResult<Realm> Realms::at(uint32_t number) const {
  const MutexLock lock(mutex_);
  const auto found = realms_.find(number);
  if (found == realms_.end()) return Errno{ESTALE};
  return found->second;
}

Status SpoolKeeper::start(const Spool& spool, std::function<void()> seal_quiet_sets) {
  VARVE_ASSIGN(thread_, start_thread([this, &spool, seal = std::move(seal_quiet_sets)] { run(spool, seal); }));
  return {};
}

void SpoolKeeper::stop() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
    wake_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void SpoolKeeper::empty_trash_soon() {
  const MutexLock lock(mutex_);
  trash_ = true;
  wake_.notify_all();
}

void SpoolKeeper::run(const Spool& spool, const std::function<void()>& seal_quiet_sets) {
  for (;;) {
    bool trash = false;
    {
      const MutexLock lock(mutex_);
      const auto wanted = [this]() VARVE_REQUIRES(mutex_) { return ending_ || trash_; };
      wake_.wait_for(mutex_, std::chrono::duration<double>(kLookSeconds), wanted);
      if (ending_) return;
      trash = std::exchange(trash_, false);
    }
    if (trash) spool.empty_trash();
    seal_quiet_sets();
  }
}

MountContext::MountContext(const Store& the_store, const Spool* the_spool, SetCommit* the_commit, Clock& the_clock,
                           const MountLog& the_log, MountedStoreOptions the_options)
    : store(the_store),
      spool(the_spool),
      commit(the_commit),
      clock(the_clock),
      log(the_log),
      options(std::move(the_options)),
      catalog(store),
      started{::time(nullptr), 0},
      stored(store, log, options.memory_bytes, options.read_ahead_threads) {}

NodeView MountContext::folder_view(uint64_t inode) const {
  NodeView view;
  view.status.st_ino = inode;
  view.status.st_mode = S_IFDIR | (is_read_only() ? 0555 : 0755);
  view.status.st_nlink = 2;
  view.status.st_uid = options.owner.user;
  view.status.st_gid = options.owner.group;
  for (timespec* time : {&view.status.st_mtim, &view.status.st_ctim, &view.status.st_atim}) *time = started;
  return view;
}

NodeView MountContext::link_view(uint64_t inode, uint64_t step) const {
  NodeView view = folder_view(inode);
  view.status.st_mode = S_IFLNK | 0777;
  view.status.st_nlink = 1;
  view.status.st_size = static_cast<off_t>(step_text(step).size());
  return view;
}

}  // namespace varve
