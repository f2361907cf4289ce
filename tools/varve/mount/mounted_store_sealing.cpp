#include <algorithm>
#include <chrono>

#include "core/guarded.h"
#include "mount/mounted_store.h"

namespace varve {

namespace {
constexpr double kLookSeconds = 0.5;
constexpr double kFirstPauseSeconds = 5;
constexpr double kPauseSecondsMax = 600;
}  // namespace

Status MountedStore::take_up_spool() {
  if (spool_ == nullptr) return {};
  VARVE_ASSIGN(const std::vector<std::string> names, spool_->jobs());
  for (const std::string& name : names) {
    const std::shared_ptr<Job> job = job_named(name);
    {
      const MutexLock lock(mutex_);
      job->spooled = true;
    }
    VARVE_ASSIGN(const std::vector<SpooledSet> sets, spool_->sets(name, [this](const Status& bad) {
      log_("left alone in the spool: " + bad.to_string());
    }));
    for (const SpooledSet& set : sets) {
      if (const Status taken = take_up_set(job, set); !taken.ok())
        log_("left alone in the spool: " + name + "/" + set.record.name + ": " + taken.to_string());
    }
  }
  return {};
}

Status MountedStore::take_up_set(const std::shared_ptr<Job>& job, SpooledSet spooled) {
  VARVE_ASSIGN(const std::optional<SetRecord> committed, commit_->committed_before(spooled));
  if (committed) {
    log_(committed->name.to_string() + " was committed before the last mount ended");
    return spool_->discard(spooled);
  }
  const std::string name = job->name + "/" + spooled.record.name;
  VARVE_ASSIGN(const std::shared_ptr<OpenSet> set, adopt_open_set(job, std::move(spooled)));
  log_(name + " is open still" +
       (set->state().unfinished ? ", and not finished: it is sealed only by a rename or by `varve seal`" : ""));
  return {};
}

void MountedStore::seal_quiet_sets() {
  if (spool_ == nullptr || options_.seal_seconds <= 0) return;
  struct Candidate {
    std::shared_ptr<Job> job;
    std::string name;
    OpenName open;
  };
  std::vector<Candidate> candidates;
  {
    const MutexLock lock(mutex_);
    for (const auto& [name, job] : jobs_) {
      for (const auto& [set_name, open] : job->open) {
        if (!parse_step_name(set_name)->temporary && open.retry.at <= clock_.seconds())
          candidates.push_back({job, set_name, open});
      }
    }
  }
  for (Candidate& candidate : candidates) {
    const OpenSet::State state = candidate.open.set->state();
    if (state.unfinished || state.sealing || state.writers > 0 || state.files == 0) continue;
    if (state.quiet_seconds < options_.seal_seconds) continue;
    const Status sealed = seal_as(candidate.job, candidate.open.set, candidate.name, options_.seal_seconds);
    if (sealed.ok()) continue;
    const MutexLock lock(mutex_);
    const auto still = candidate.job->open.find(candidate.name);
    if (still == candidate.job->open.end()) continue;
    Retry& retry = still->second.retry;
    // Who is busy tells so by coming; a real failure may last.
    const bool busy = sealed.code() == StatusCode::busy;
    retry.pause = busy ? kFirstPauseSeconds : std::clamp(retry.pause * 2, kFirstPauseSeconds, kPauseSecondsMax);
    retry.at = clock_.seconds() + retry.pause;
  }
}

void MountedStore::empty_trash_soon() {
  const MutexLock lock(serving_mutex_);
  trash_ = true;
  wake_.notify_all();
}

void MountedStore::serve() {
  for (;;) {
    bool trash = false;
    {
      const MutexLock lock(serving_mutex_);
      const auto wanted = [this]() VARVE_REQUIRES(serving_mutex_) { return ending_ || trash_; };
      wake_.wait_for(serving_mutex_, std::chrono::duration<double>(kLookSeconds), wanted);
      if (ending_) return;
      trash = std::exchange(trash_, false);
    }
    if (trash) spool_->empty_trash();
    seal_quiet_sets();
  }
}

Status MountedStore::start_sealing() {
  if (spool_ == nullptr) return {};
  VARVE_ASSIGN(server_, start_thread([this] { serve(); }));
  return {};
}

void MountedStore::stop_sealing() {
  if (commit_ != nullptr) commit_->cancel();
  {
    const MutexLock lock(serving_mutex_);
    ending_ = true;
    wake_.notify_all();
  }
  if (server_.joinable()) server_.join();
}

}  // namespace varve
