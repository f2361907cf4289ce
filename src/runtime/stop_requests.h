#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/clock.h"
#include "core/file_system.h"
#include "varve/status.h"

namespace varve {

struct StopRule {
  bool on_signals = true;                 ///< SIGTERM and SIGUSR1
  std::optional<double> after_seconds{};  ///< since the object was made
  std::optional<std::string> file{};      ///< is looked for at most once a second
  /// Between a stop that is asked for and the end, where whoever asks does not wait longer.
  std::optional<double> grace{};
  /// When the job is ended, in seconds since 1970: a stop is asked for `grace` before (or kGraceSeconds).
  std::optional<double> end_time{};

  static constexpr double kGraceSeconds = 60;
};

/// Notices that this process is asked to stop; what all ranks do about it is agreed elsewhere (cadence.h). While an
/// object with `on_signals` exists, SIGTERM and SIGUSR1 no longer end the process, however often they come: handlers
/// that were there before are called after ours, and come back with the end of the last such object. A signal that was
/// ignored before stays ignored. requested() and reason() from one thread.
class StopRequests {
 public:
  /// `watches_file`: whether this rank looks for the file (rank 0, so that a file system is not asked by thousands).
  static Result<StopRequests> start(StopRule rule, bool watches_file, FileSystem& files = posix_file_system(),
                                    Clock& clock = steady_clock());
  StopRequests(StopRequests&&) noexcept;
  StopRequests& operator=(StopRequests&&) noexcept;
  ~StopRequests();

  /// Whether a stop can be asked for at all, on any rank: else no rank needs to be asked.
  bool possible() const;
  /// Whether one was asked for on this rank; stays true. Cheap enough for every step.
  bool requested();
  /// What asked: "SIGUSR1", "the time limit of 3600 s", "the file halt"; empty before.
  std::string reason() const;
  /// Until this process is ended, as far as is known here and now: infinite if nobody has asked, or it is not known how
  /// long who asks will wait.
  double seconds_left();

 private:
  class Impl;
  explicit StopRequests(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace varve
