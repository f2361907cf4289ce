#include "mount/sealing.h"

#include "engine/save.h"
#include "store/catalog.h"

namespace varve {

class SetCommit::Progress final : public ProgressSink {
 public:
  explicit Progress(const SetCommit& commit) : commit_(commit) {}
  void total(uint64_t) override {}
  void advance(uint64_t) override {}
  void phase(std::string_view) override {}
  void warning(const Status& what) override { commit_.log_("warning: " + what.to_string()); }
  bool cancelled() const override { return commit_.cancelled_.load(); }

 private:
  const SetCommit& commit_;
};

Result<SetRecord> SetCommit::commit(const SpooledSet& set, const SetName& name,
                                    const std::function<Status()>& check_written_back) {
  const MutexLock lock(mutex_);
  Progress progress(*this);
  if (!unsynced_.contains(set.files_path())) {
    Status durable;
    VARVE_ASSIGN(std::optional<SetRecord> before, find_attempt(set, durable));
    // One under another name is taken back below: it is asked for under this one now.
    if (before && before->name == name) {
      if (!durable.ok()) unsynced_.insert(set.files_path());
      VARVE_TRY(durable);
      return *std::move(before);
    }
  }
  VARVE_TRY(take_back_failed_attempt(set));
  unsynced_.erase(set.files_path());
  bool in_catalog = false;
  auto publish = [&](WriterLease& lease, const SetRecord& record) -> Status {
    VARVE_TRY(check_written_back());  // after the last read
    VARVE_TRY(spool_.write_attempt(set, record, store_.score()));
    const Status committed = lease.commit(record);
    in_catalog = lease.has_passed_commit_point();
    return committed;
  };
  VARVE_ASSIGN(const NamedSource source, look_at_source(set.files_path()));
  VARVE_ASSIGN(std::vector<SourceFile> files, find_files(source, options_, progress));
  Result<SaveReport> saved =
      save_files_as(store_, set.files_path(), std::move(files), name, options_, layouts_, progress, publish);
  if (saved.ok()) return std::move(saved->record);
  if (in_catalog) {
    // The set goes, and is open as before.
    const Status gone = take_back_failed_attempt(set);
    if (!gone.ok()) unsynced_.insert(set.files_path());  // the next try does it, or the next mount finds it committed
    return saved.status();
  }
  // Somebody else may have committed the very same set, or a server have lost its answer.
  Status durable;
  Result<std::optional<SetRecord>> before = find_attempt(set, durable);
  if (!durable.ok()) unsynced_.insert(set.files_path());
  if (before.ok() && *before && durable.ok()) return std::move(**before);
  return saved.status();
}

Status SetCommit::take_back_failed_attempt(const SpooledSet& set) const {
  VARVE_ASSIGN(const std::optional<SetRecord> attempt, spool_.read_attempt(set, store_.score()));
  if (attempt) {
    VARVE_TRY(remove_used_parts(store_, &attempt->name).status());
    VARVE_ASSIGN(const Catalog::Removal removal,
                 Catalog(store_).remove_if(attempt->name, [&](const SetRecord& there, const SetRemarks*) {
                   return encode_set_record(there, store_.score()) == encode_set_record(*attempt, store_.score());
                 }));
    // The note of the attempt stays then, by which it is found later.
    if (removal == Catalog::Removal::is_pinned)
      return Status::busy("the set was pinned as soon as it was there", attempt->name.to_string());
  }
  return spool_.remove_attempt(set);
}

Result<std::optional<SetRecord>> SetCommit::committed_before(const SpooledSet& set) const {
  Status durable;
  VARVE_ASSIGN(std::optional<SetRecord> before, find_attempt(set, durable));
  VARVE_TRY(durable);
  return before;
}

Result<std::optional<SetRecord>> SetCommit::find_attempt(const SpooledSet& set, Status& durable) const {
  VARVE_ASSIGN(const std::optional<SetRecord> attempt, spool_.read_attempt(set, store_.score()));
  if (!attempt) return std::optional<SetRecord>();
  const Catalog catalog(store_);
  VARVE_ASSIGN(const std::unique_ptr<PowerWatch> power, store_.backend().watch_power());
  Result<SetRecord> there = catalog.read(attempt->name);
  if (there.status().code() == StatusCode::not_found) return std::optional<SetRecord>();
  VARVE_TRY(there.status());
  if (!same_trees(*there, *attempt)) return std::optional<SetRecord>();
  durable = catalog.make_durable(attempt->name.job);
  return std::optional<SetRecord>(std::move(*there));
}

class SetForwarding::Progress final : public ProgressSink {
 public:
  explicit Progress(SetForwarding& forwarding) : forwarding_(forwarding) {}
  void total(uint64_t) override {}
  void advance(uint64_t) override {}
  void phase(std::string_view) override {}
  void warning(const Status& what) override { forwarding_.log_(what.to_string()); }
  bool cancelled() const override {
    const MutexLock lock(forwarding_.mutex_);
    return forwarding_.ending_;
  }

 private:
  SetForwarding& forwarding_;
};

SetForwarding::~SetForwarding() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Status SetForwarding::start() {
  VARVE_ASSIGN(const std::vector<std::string> jobs, Catalog(*levels_.nearest().access().opened()).jobs());
  {
    const MutexLock lock(mutex_);
    jobs_.insert(jobs.begin(), jobs.end());
  }
  const BlockedSignals blocked;
  VARVE_ASSIGN(thread_, start_thread([this] { run(); }));
  return {};
}

void SetForwarding::note_sealed(const std::string& job) {
  {
    const MutexLock lock(mutex_);
    jobs_.insert(job);
  }
  changed_.notify_all();
}

void SetForwarding::run() {
  Progress progress(*this);
  MutexLock lock(mutex_);
  for (;;) {
    while (!ending_ && jobs_.empty()) changed_.wait(mutex_);
    if (ending_) return;
    const std::string job = *jobs_.begin();
    jobs_.erase(jobs_.begin());
    lock.unlock();
    tell(bring_along(levels_, job, progress));
    lock.lock();
  }
}

void SetForwarding::tell(const Onward& onward) {
  for (const LevelCopy& copy : onward.copies) log_("copied " + copy.name.to_string() + " to " + copy.level);
  for (const Status& given_up : onward.given_up) log_(given_up.to_string());
  for (const Status& failure : onward.failures) {
    if (failure.code() != StatusCode::cancelled) log_(failure.to_string());
  }
}

}  // namespace varve
