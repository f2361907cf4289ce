#include "core/clock.h"

#include <chrono>
#include <ctime>

#include "core/sync.h"

namespace varve {

namespace {
class SteadyClock final : public Clock {
 public:
  double seconds() const override {
    return std::chrono::duration<double>(MonotonicClock::now().time_since_epoch()).count();
  }
  void sleep(double seconds) override {
    if (seconds > 0) sleep_for(std::chrono::duration<double>(seconds));
  }
};
}  // namespace

Clock& steady_clock() {
  static SteadyClock clock;
  return clock;
}

namespace {
thread_local ProcessorMeter* current_meter = nullptr;

int64_t thread_nanoseconds() {
  timespec time = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}
}  // namespace

ProcessorMeter* ProcessorMeter::current() { return current_meter; }

ProcessorMeter::Scope::Scope(ProcessorMeter* meter)
    : meter_(meter), outer_(current_meter), begin_(meter == nullptr ? 0 : thread_nanoseconds()) {
  current_meter = meter;
}

ProcessorMeter::Scope::~Scope() {
  current_meter = outer_;
  if (meter_ != nullptr) meter_->nanoseconds_ += thread_nanoseconds() - begin_;
}

}  // namespace varve
