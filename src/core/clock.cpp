#include "core/clock.h"

#include <chrono>

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
  static auto& clock = *new SteadyClock;  // as posix_file_system()
  return clock;
}

}  // namespace varve
