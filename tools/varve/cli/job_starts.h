#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/file_system.h"
#include "runtime/run_note.h"
#include "varve/status.h"

namespace varve::cli {

/// How often a job was started, and how its starts have ended, so that one that fails again and again at the same step
/// is not started for ever. Kept in a file between starts.
struct JobStarts {
  uint64_t starts = 0;  ///< so far
  /// Starts in a row that have failed though nobody had asked them to end, all of which went on from `step`.
  uint64_t crashes = 0;
  std::optional<uint64_t> step{};  ///< none: they began anew
  bool is_under_way = false;       ///< one was started, and nobody has told of its end
  bool was_asked = false;          ///< and it was asked to stop
  bool operator==(const JobStarts&) const = default;

  std::string text() const;
  /// corrupt unless it is what text() gives.
  static Result<JobStarts> parse(std::string_view text);

  /// A start that has gone on from this step has failed; none: it began anew, or it is not known.
  void note_crash(std::optional<uint64_t> restarted_from);
  /// It came to its end, or stopped as it was asked to.
  void note_good_end();
  /// The one before this may have ended with its node: `note` is what its session has left.
  void note_start(const std::optional<RunNote>& note);
};

/// Nothing: the job was never started.
Result<JobStarts> read_job_starts(FileSystem& files, const std::string& path);
/// Durable, and never seen half written.
Status write_job_starts(FileSystem& files, const std::string& path, const JobStarts& starts);

}  // namespace varve::cli
