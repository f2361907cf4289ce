#include "monitor/store_monitor.h"

#include <algorithm>
#include <chrono>

#include "core/guarded.h"
#include "core/process.h"

namespace varve {

namespace {
/// A look that took so long is not taken again before a hundred times as long has passed.
constexpr double kPauseOfWork = 99;
/// Of packs, what knowing of one takes, for all sets and for the one at hand, with its entry in an arena's index; and
/// what few packs are smaller than.
constexpr uint64_t kMemoryOfPack = 300, kPackBytesUsual = 64_KiB;

Moment next_look(Moment begin, double seconds_at_least) {
  const std::chrono::duration<double> took = MonotonicClock::now() - begin;
  return moment_after(std::chrono::duration<double>(std::max(seconds_at_least, kPauseOfWork * took.count())));
}
}  // namespace

/// Ends what takes long.
class StoreMonitor::Stopping final : public ProgressSink {
 public:
  explicit Stopping(const StoreMonitor& monitor) : monitor_(monitor) {}
  void total(uint64_t) override {}
  void advance(uint64_t) override {}
  void phase(std::string_view) override {}
  void warning(const Status&) override {}
  bool cancelled() const override {
    const MutexLock lock(monitor_.mutex_);
    return monitor_.stopping_;
  }

 private:
  const StoreMonitor& monitor_;
};

Result<std::unique_ptr<StoreMonitor>> StoreMonitor::start(const Store& store, const StoreMonitorOptions& options) {
  std::unique_ptr<StoreMonitor> monitor(new StoreMonitor(store, options));
  const BlockedSignals blocked;
  VARVE_ASSIGN(monitor->thread_, start_thread([&self = *monitor] { self.run(); }));
  return monitor;
}

StoreMonitor::~StoreMonitor() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void StoreMonitor::run() {
  Moment next_facts = MonotonicClock::now(), next_garbage = next_facts;
  for (;;) {
    Moment begin = MonotonicClock::now();
    if (begin >= next_facts) {
      run_guarded([&] { look(); }).ignore("it is tried again");
      next_facts = next_look(begin, options_.look_seconds);
    }
    begin = MonotonicClock::now();
    if (options_.tells_garbage && begin >= next_garbage) {
      run_guarded([&] { look_for_garbage(); }).ignore("it is tried again");
      next_garbage = next_look(begin, options_.garbage_seconds);
    }
    const MutexLock lock(mutex_);
    const Moment next = options_.tells_garbage ? std::min(next_facts, next_garbage) : next_facts;
    if (changed_.wait_until(mutex_, next, [this]() VARVE_REQUIRES(mutex_) { return stopping_; })) return;
  }
}

void StoreMonitor::look() {
  Result<StoreFacts> facts = look_at_store(store_);
  if (!facts.ok()) return;
  const MutexLock lock(mutex_);
  known_.facts = *std::move(facts);
}

void StoreMonitor::look_for_garbage() {
  const Result<uint64_t> arenas = arena_bytes(store_);
  if (!arenas.ok() || *arenas / kPackBytesUsual * kMemoryOfPack > options_.garbage_memory_bytes) return;
  Stopping progress(*this);
  const Result<uint64_t> garbage = garbage_bytes(store_, progress);
  // An arena that is removed meanwhile gives its space back.
  store_.drop_arena_cache();
  if (!garbage.ok()) return;
  const MutexLock lock(mutex_);
  known_.garbage_bytes = *garbage;
  known_.garbage_at = calendar_time();
}

void StoreMonitor::tell(Metrics& metrics) const {
  const MutexLock lock(mutex_);
  if (known_.facts) varve::tell(*known_.facts, metrics);
  if (known_.garbage_bytes) {
    tell_garbage(*known_.garbage_bytes, metrics);
    metrics.gauge("varve_store_garbage_updated_timestamp_seconds", "When it was looked for what nobody needs.")
        .sample(known_.garbage_at);
  }
}

}  // namespace varve
