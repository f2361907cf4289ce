#include "mount/set_forwarding.h"

#include "core/blocked_signals.h"
#include "store/catalog.h"

namespace varve {

class SetForwarding::Progress final : public ProgressSink {
 public:
  explicit Progress(SetForwarding& forwarding) : forwarding_(forwarding) {}
  void total(uint64_t) override {}
  void advance(uint64_t) override {}
  void phase(std::string_view) override {}
  void warning(const Status& what) override { forwarding_.log_(what.to_string()); }
  bool cancelled() const override {
    std::lock_guard lock(forwarding_.mutex_);
    return forwarding_.ending_;
  }

 private:
  SetForwarding& forwarding_;
};

SetForwarding::~SetForwarding() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Status SetForwarding::start() {
  VARVE_ASSIGN(const std::vector<std::string> jobs, Catalog(*levels_.nearest().opened()).jobs());
  jobs_.insert(jobs.begin(), jobs.end());
  const BlockedSignals blocked;
  VARVE_ASSIGN(thread_, start_thread([this] { run(); }));
  return {};
}

void SetForwarding::note_sealed(const std::string& job) {
  {
    std::lock_guard lock(mutex_);
    jobs_.insert(job);
  }
  changed_.notify_all();
}

void SetForwarding::run() {
  Progress progress(*this);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ending_ || !jobs_.empty(); });
    if (ending_) return;
    const std::string job = *jobs_.begin();
    jobs_.erase(jobs_.begin());
    lock.unlock();
    tell(levels_.bring_along(job, progress));
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
