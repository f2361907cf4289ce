#include "mount/open_set.h"

namespace varve {

Result<std::shared_ptr<OpenSet>> OpenSet::load(uint32_t realm, SpooledSet spooled, const Spool& spool, Clock& clock,
                                               OpenFolderOptions options) {
  VARVE_ASSIGN(SpoolTree tree, SpoolTree::load(realm, spooled));
  OpenSetRecord& record = spooled.record;
  if (!record.unfinished && (tree.was_left_open() || record.boot != spool.boot())) {
    record.unfinished = true;
    VARVE_TRY(spool.write_record(spooled));
  }
  auto folder = std::make_shared<OpenFolder>(std::move(tree), clock, options, spool.may_have_attempt(spooled),
                                             [&spool, spooled] { return spool.remove_attempt(spooled); });
  return std::shared_ptr<OpenSet>(new OpenSet(realm, std::move(spooled), spool, std::move(folder)));
}

SpooledSet OpenSet::spooled() const {
  const MutexLock lock(mutex_);
  return spooled_;
}

Errno OpenSet::set_name(const std::string& name) {
  MOUNT_TRY(folder_->prepare_rename());
  const MutexLock lock(mutex_);
  if (stage_ != Stage::open) return {EBUSY};
  SpooledSet renamed = spooled_;
  renamed.record.name = name;
  if (const Status written = spool_.write_record(renamed); !written.ok()) return errno_of(written);
  spooled_ = std::move(renamed);
  return {};
}

Status OpenSet::note_unfinished() {
  const MutexLock lock(mutex_);
  if (stage_ == Stage::sealed || spooled_.record.unfinished) return {};
  spooled_.record.unfinished = true;
  return spool_.write_record(spooled_);
}

OpenSet::Summary OpenSet::summary() const {
  Summary summary;
  summary.written = folder_->tally();
  const MutexLock lock(mutex_);
  summary.sealing = stage_ == Stage::sealing;
  summary.unfinished = spooled_.record.unfinished || summary.written.cut_short > 0;
  summary.failure = failure_;
  return summary;
}

Errno OpenSet::begin_sealing(double quiet_seconds) {
  MOUNT_TRY(folder_->freeze(quiet_seconds));
  const MutexLock lock(mutex_);
  stage_ = Stage::sealing;
  return {};
}

void OpenSet::give_up_sealing(const Status& why) {
  {
    const MutexLock lock(mutex_);
    stage_ = Stage::open;
    failure_ = why;
  }
  folder_->thaw();  // from here on somebody else may begin
}

void OpenSet::finish_sealing() {
  const MutexLock lock(mutex_);
  stage_ = Stage::sealed;
}

}  // namespace varve
