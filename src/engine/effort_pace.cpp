#include "engine/effort_pace.h"

#include <algorithm>
#include <cmath>

#include "core/work_meter.h"

namespace varve {

namespace {
/// Of older packs and writes only as much counts, so that a change is soon noticed.
constexpr double kRememberedBytes = 64 << 20;
/// While a class is stored as it is, one pack of so many shows whether that is still right.
constexpr uint64_t kPacksPerTrial = 64;
/// What was written in this save counts once it is so much.
constexpr uint64_t kWrittenBytesMin = 8 << 20;
}  // namespace

PackEffort EffortOutcome::mostly() const {
  size_t most = 0;
  for (size_t i = 1; i < bytes.size(); ++i) {
    if (bytes[i] > bytes[most]) most = i;
  }
  return static_cast<PackEffort>(most);
}

void EffortPace::Encoded::add(double more_seconds, double more_raw_bytes, double more_stored_bytes) {
  if (raw_bytes + more_raw_bytes > kRememberedBytes) {
    seconds /= 2;
    raw_bytes /= 2;
    stored_bytes /= 2;
  }
  seconds += more_seconds;
  raw_bytes += more_raw_bytes;
  stored_bytes += more_stored_bytes;
}

void EffortPace::begin(uint64_t raw_bytes, uint32_t thread_count, const SpareTime& spare) {
  const MutexLock lock(mutex_);
  outcome_ = {};
  raw_bytes_ = static_cast<double>(raw_bytes);
  placed_bytes_ = packed_bytes_ = 0;
  threads_ = std::max(1u, thread_count);
  spare_ = spare;
}

EffortOutcome EffortPace::end() {
  const MutexLock lock(mutex_);
  if (placed_bytes_ > 0) new_share_ = packed_bytes_ / placed_bytes_;
  if (const WorkMeter* const meter = WorkMeter::current()) {
    const WorkMeter::Spent write = meter->spent(WorkKind::write), sync = meter->spent(WorkKind::sync);
    if (write.bytes >= kWrittenBytesMin)
      written_.add(write.seconds + sync.seconds, static_cast<double>(write.bytes), 0);
  }
  return outcome_;
}

void EffortPace::note_placed(uint64_t bytes) {
  const MutexLock lock(mutex_);
  placed_bytes_ += static_cast<double>(bytes);
}

double EffortPace::bytes_to_come() const {
  // The last save says how much will be new, until this one has come some way.
  const double begun = raw_bytes_ / 16;
  const double new_share = (packed_bytes_ + new_share_ * begun) / std::max(1.0, placed_bytes_ + begun);
  return std::max(0.0, raw_bytes_ - placed_bytes_) * std::min(1.0, new_share);
}

/// Whether what is left can be compressed so in what is left of the spare time.
bool EffortPace::affords(PackEffort effort) const {
  if (hurries()) return false;
  const Encoded& encoded = encoded_[static_cast<size_t>(effort)];
  // What was never tried is tried.
  const double needed = encoded.raw_bytes == 0 ? 0 : bytes_to_come() * encoded.seconds_per_byte();
  return needed / threads_ < spare_.until - clock_.seconds() && needed < spare_.processor_seconds;
}

/// 0: not known yet.
double EffortPace::write_seconds_per_byte() const {
  Encoded all = written_;
  if (const WorkMeter* const meter = WorkMeter::current()) {
    const WorkMeter::Spent now = meter->spent(WorkKind::write);
    if (now.bytes >= kWrittenBytesMin) all.add(now.seconds, static_cast<double>(now.bytes), 0);
  }
  return all.raw_bytes > 0 ? all.seconds_per_byte() : 0;
}

/// Whether what is left is written in time as it is. Not if that is not known yet.
bool EffortPace::writes_in_time() const {
  const double write_seconds = write_seconds_per_byte();
  return !hurries() && write_seconds > 0 && bytes_to_come() * write_seconds < spare_.until - clock_.seconds();
}

PackEffort EffortPace::best_bargain(OfClass& of_class) {
  const double write_seconds = write_seconds_per_byte();
  // What somebody waits for, or may have to wait for, is to be done soon: the threads share the work. Otherwise the
  // program is to be done soon, which lacks all of it.
  const double sharing = std::isinf(spare_.processor_seconds) || !writes_in_time() ? threads_ : 1;
  // Effort fast takes a fraction of what was asked for: it is tried before anything is stored as it is.
  if (write_seconds == 0 || of_class.encoded[static_cast<size_t>(PackEffort::fast)].raw_bytes == 0) {
    return PackEffort::fast;
  }
  PackEffort best = PackEffort::none;
  double most = 0;
  for (size_t i = 0; i < of_class.encoded.size(); ++i) {
    const Encoded& encoded = of_class.encoded[i];
    if (encoded.raw_bytes == 0) continue;
    const double gain = encoded.saved_share() * write_seconds - encoded.seconds_per_byte() / sharing;
    if (gain <= most) continue;
    most = gain;
    best = static_cast<PackEffort>(i);
  }
  if (best != PackEffort::none) return best;
  return ++of_class.stored_packs % kPacksPerTrial == 0 ? PackEffort::fast : PackEffort::none;
}

PackEffort EffortPace::choose(const std::string& class_key, uint64_t raw_bytes) {
  const MutexLock lock(mutex_);
  packed_bytes_ += static_cast<double>(raw_bytes);
  PackEffort chosen = PackEffort::asked;
  if (!affords(PackEffort::asked)) {
    chosen = affords(PackEffort::fast) ? PackEffort::fast : best_bargain(classes_[class_key]);
    if (chosen != PackEffort::asked) (hurries() ? outcome_.was_awaited : outcome_.was_late) = true;
  }
  outcome_.bytes[static_cast<size_t>(chosen)] += raw_bytes;
  return chosen;
}

void EffortPace::note_encoded(const std::string& class_key, PackEffort effort, uint64_t raw_bytes,
                              uint64_t stored_bytes, double seconds) {
  if (effort == PackEffort::none) return;
  const MutexLock lock(mutex_);
  const auto raw = static_cast<double>(raw_bytes), stored = static_cast<double>(stored_bytes);
  classes_[class_key].encoded[static_cast<size_t>(effort)].add(seconds, raw, stored);
  encoded_[static_cast<size_t>(effort)].add(seconds, raw, stored);
  spare_.processor_seconds -= seconds;
}

}  // namespace varve
