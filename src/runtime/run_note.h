#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/file_system.h"
#include "varve/status.h"

namespace varve {

/// What a run tells whoever has started it (`varve run`), in the file that the option `note_file` names: from where it
/// went on, and, once it is over in good order, whether it was asked to stop and where its last checkpoint is. Rank 0
/// writes it.
struct RunNote {
  std::optional<uint64_t> restarted_from{};  ///< none: it began anew
  std::optional<uint64_t> last_step{};       ///< of the newest checkpoint that is complete at `place`
  std::string place{};                       ///< "memory", or the level's name
  std::string stopped_by{};                  ///< "SIGTERM", "the end of the job's time"; empty: it came to its end
  bool ended = false;                        ///< finish() was called
  bool operator==(const RunNote&) const = default;

  std::string text() const;
  /// corrupt unless it is what text() gives.
  static Result<RunNote> parse(std::string_view text);
};

/// Durable, and never seen half written.
Status write_run_note(FileSystem& files, const std::string& path, const RunNote& note);
/// not_found: no session has come so far.
Result<RunNote> read_run_note(FileSystem& files, const std::string& path);

}  // namespace varve
