#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <map>
#include <string>

#include "codec/chooser.h"
#include "core/clock.h"
#include "core/sync.h"

namespace varve {

/// How hard a pack is compressed: as was asked for, with effort fast, or not at all.
enum class PackEffort : uint8_t { asked, fast, none };
inline constexpr size_t kPackEfforts = 3;

/// How hard the packs of one save were compressed, and why.
struct EffortOutcome {
  std::array<uint64_t, kPackEfforts> bytes{};  ///< raw, by PackEffort
  bool was_late = false;                       ///< some less hard than asked, as there was no time left for more
  bool was_awaited = false;                    ///< the same, as somebody waited
  /// That of most bytes; of none as asked.
  PackEffort mostly() const;
};

/// What compressing the packs of a save may take.
struct SpareTime {
  double until = 0;                                                    ///< by the clock
  double processor_seconds = std::numeric_limits<double>::infinity();  ///< of all threads, which the program lacks
};

/// Chooses how hard the packs of a run's saves are compressed, where that is left to Varve: as hard as was asked for
/// while there is time, or else fast, if there is time for that; else so that compressing takes less than it saves in
/// writing, or not at all. It goes by what encoding and writing have taken in this run, class by class, and so changes
/// codec chains only: neither which packs there are, nor their order, nor their scores. One save at a time;
/// thread-safe.
class EffortPace {
 public:
  explicit EffortPace(Clock& clock = steady_clock()) : clock_(clock) {}

  /// A save of so many raw bytes begins, on so many threads.
  void begin(uint64_t raw_bytes, uint32_t thread_count, const SpareTime& spare);
  /// It has ended.
  EffortOutcome end();

  /// Somebody waits for the save that is under way, or the next one; or does no more. As often each.
  void hurry(bool waits) { waiting_ += waits ? 1 : -1; }
  bool hurries() const { return waiting_ > 0; }

  // The engine's

  /// So many raw bytes are dealt with: in packs, or known already.
  void note_placed(uint64_t bytes);
  /// For the next pack of a class. Writing is measured by the calling thread's WorkMeter.
  PackEffort choose(const std::string& class_key, uint64_t raw_bytes);
  /// What it took, in seconds of a processor, and gave.
  void note_encoded(const std::string& class_key, PackEffort effort, uint64_t raw_bytes, uint64_t stored_bytes,
                    double seconds);

 private:
  /// What encoding took and gave, for some megabytes until now.
  struct Encoded {
    double seconds = 0, raw_bytes = 0, stored_bytes = 0;
    void add(double more_seconds, double more_raw_bytes, double more_stored_bytes);
    double seconds_per_byte() const { return seconds / raw_bytes; }
    double saved_share() const { return 1 - stored_bytes / raw_bytes; }
  };
  struct OfClass {
    std::array<Encoded, 2> encoded;  ///< as asked, fast
    uint64_t stored_packs = 0;
  };

  /// Of what this save has not placed yet, what comes into packs.
  double bytes_to_come() const VARVE_REQUIRES(mutex_);
  bool affords(PackEffort effort) const VARVE_REQUIRES(mutex_);
  double write_seconds_per_byte() const VARVE_REQUIRES(mutex_);
  bool writes_in_time() const VARVE_REQUIRES(mutex_);
  PackEffort best_bargain(OfClass& of_class) VARVE_REQUIRES(mutex_);

  Clock& clock_;
  std::atomic<int> waiting_{0};
  Mutex mutex_;
  std::map<std::string, OfClass> classes_ VARVE_GUARDED_BY(mutex_);
  std::array<Encoded, 2> encoded_ VARVE_GUARDED_BY(mutex_);  ///< as asked, fast: of all classes
  Encoded written_ VARVE_GUARDED_BY(mutex_);        ///< of earlier saves: seconds of writing, bytes as raw_bytes
  double new_share_ VARVE_GUARDED_BY(mutex_) = 1;   ///< what part of the last save's bytes came into packs
  EffortOutcome outcome_ VARVE_GUARDED_BY(mutex_);  ///< of this save, as the following
  double raw_bytes_ VARVE_GUARDED_BY(mutex_) = 0;
  double placed_bytes_ VARVE_GUARDED_BY(mutex_) = 0;
  double packed_bytes_ VARVE_GUARDED_BY(mutex_) = 0;
  double threads_ VARVE_GUARDED_BY(mutex_) = 1;
  SpareTime spare_ VARVE_GUARDED_BY(mutex_);  ///< what is left of it
};

}  // namespace varve
