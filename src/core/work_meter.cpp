#include "core/work_meter.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>

#include "core/process.h"
#include "core/sync.h"

namespace varve {

namespace {
thread_local WorkMeter* current_meter = nullptr;

/// How long the calling thread has been ready to run without a processor, since it began: the second number of its
/// schedstat (Linux, Documentation/scheduler/sched-stats.rst). 0 where there is none.
int64_t thread_starved_nanoseconds() {
  const UniqueFd file(::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return 0;
  char text[96] = {};
  if (::read(file.get(), text, sizeof text - 1) <= 0) return 0;
  char* rest = text;
  std::strtoll(rest, &rest, 10);
  return std::strtoll(rest, nullptr, 10);
}

bool waits_for_store(WorkKind kind) { return kind == WorkKind::write || kind == WorkKind::sync; }

int64_t now_for(WorkKind kind) {
  return waits_for_store(kind) ? std::chrono::nanoseconds(MonotonicClock::now().time_since_epoch()).count()
                               : thread_processor_nanoseconds();
}
}  // namespace

int64_t thread_processor_nanoseconds() {
  timespec time = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

WorkMeter::Spent WorkMeter::spent(WorkKind kind) const {
  const Sum& sum = kinds_[static_cast<size_t>(kind)];
  return {sum.bytes.load(), static_cast<double>(sum.nanoseconds.load()) * 1e-9};
}

void WorkMeter::add(WorkKind kind, uint64_t bytes, int64_t nanoseconds) {
  Sum& sum = kinds_[static_cast<size_t>(kind)];
  sum.bytes += bytes;
  sum.nanoseconds += nanoseconds;
}

WorkTimes WorkMeter::times() const {
  return {.read = spent(WorkKind::read).seconds,
          .score = spent(WorkKind::score).seconds,
          .encode = spent(WorkKind::encode).seconds,
          .write = spent(WorkKind::write).seconds,
          .sync = spent(WorkKind::sync).seconds,
          .starved = static_cast<double>(starved_ns_.load()) * 1e-9};
}

WorkTimes& WorkTimes::operator+=(const WorkTimes& more) {
  read += more.read;
  score += more.score;
  encode += more.encode;
  write += more.write;
  sync += more.sync;
  starved += more.starved;
  return *this;
}

WorkMeter* WorkMeter::current() { return current_meter; }

WorkMeter::Scope::Scope(WorkMeter* meter)
    : meter_(meter),
      outer_(current_meter),
      processor_begin_(meter == nullptr ? 0 : thread_processor_nanoseconds()),
      starved_begin_(meter == nullptr ? 0 : thread_starved_nanoseconds()) {
  current_meter = meter;
}

WorkMeter::Scope::~Scope() {
  current_meter = outer_;
  if (meter_ == nullptr) return;
  meter_->processor_ns_ += thread_processor_nanoseconds() - processor_begin_;
  meter_->starved_ns_ += thread_starved_nanoseconds() - starved_begin_;
}

WorkMeter::Timer::Timer(WorkKind kind, uint64_t bytes, size_t sharing)
    : kind_(kind),
      bytes_(bytes),
      sharing_(sharing),
      meter_(current_meter),
      begin_(meter_ == nullptr ? 0 : now_for(kind)),
      starved_begin_(meter_ == nullptr || !waits_for_store(kind) ? 0 : thread_starved_nanoseconds()) {}

WorkMeter::Timer::~Timer() {
  if (meter_ == nullptr) return;
  int64_t taken = now_for(kind_) - begin_;
  if (waits_for_store(kind_)) taken -= std::clamp<int64_t>(thread_starved_nanoseconds() - starved_begin_, 0, taken);
  meter_->add(kind_, bytes_, taken / static_cast<int64_t>(sharing_));
}

}  // namespace varve
