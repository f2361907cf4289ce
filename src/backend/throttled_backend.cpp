#include "backend/throttled_backend.h"

#include <algorithm>
#include <utility>

namespace varve {

namespace {
constexpr double kSleepSecondsMax = 0.5;  // between two looks at whether to end
}

BandwidthLimit::BandwidthLimit(double bytes_per_second, Clock& clock, std::function<bool()> is_to_end,
                               double burst_seconds)
    : bytes_per_second_(bytes_per_second),
      burst_seconds_(burst_seconds),
      is_to_end_(std::move(is_to_end)),
      clock_(clock),
      paid_until_(clock.seconds()) {}

void BandwidthLimit::take(uint64_t bytes) {
  double wait_seconds = 0;
  {
    const MutexLock lock(mutex_);
    const double now = clock_.seconds();
    paid_until_ = std::max(paid_until_, now - burst_seconds_) + static_cast<double>(bytes) / bytes_per_second_;
    wait_seconds = paid_until_ - now;
  }
  while (wait_seconds > 0 && !(is_to_end_ && is_to_end_())) {
    const double sleep_seconds = is_to_end_ ? std::min(wait_seconds, kSleepSecondsMax) : wait_seconds;
    clock_.sleep(sleep_seconds);
    wait_seconds -= sleep_seconds;
  }
}

namespace {
class ThrottledWriter final : public ObjectWriter {
 public:
  ThrottledWriter(std::unique_ptr<ObjectWriter> inner, BandwidthLimit& limit)
      : inner_(std::move(inner)), limit_(limit) {}

  Status write_at(uint64_t offset, ByteSpan from) override {
    limit_.take(from.size());
    return inner_->write_at(offset, from);
  }
  Result<size_t> read_at(uint64_t offset, MutableByteSpan into) override { return inner_->read_at(offset, into); }
  Status seal(uint64_t bytes) override { return inner_->seal(bytes); }

 private:
  const std::unique_ptr<ObjectWriter> inner_;
  BandwidthLimit& limit_;
};
}  // namespace

Result<std::unique_ptr<ObjectWriter>> ThrottledBackend::put(const std::string& name, PutOptions options) {
  VARVE_ASSIGN(std::unique_ptr<ObjectWriter> object, inner_.put(name, options));
  return std::unique_ptr<ObjectWriter>(std::make_unique<ThrottledWriter>(std::move(object), limit_));
}

}  // namespace varve
