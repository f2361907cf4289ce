#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/process_identity.h"
#include "core/quantity.h"
#include "core/work_meter.h"
#include "runtime/blocked_time.h"
#include "runtime/settings.h"
#include "varve/status.h"

namespace varve {

/// What happens in a run that its timeline tells of (docs/INTERNALS.md, "The log of a run").
enum class RunEventKind : uint8_t {
  open,
  restart,
  making,      ///< the program began to make a checkpoint
  checkpoint,  ///< there is a snapshot, or there could be none
  skipped,
  waited,    ///< for the store, at the program's wish
  stored,    ///< complete in the nearest store
  failed,    ///< it will not be
  begun,     ///< it is on its way to a farther level
  arrived,   ///< it is there
  away,      ///< the level failed
  given_up,  ///< it never goes there
  end,
};
/// "open", "restart", ...
std::string_view run_event_name(RunEventKind kind);

/// One of these events. What it does not have is zero or empty. Times are seconds since 1970.
struct RunEvent {
  RunEventKind kind = RunEventKind::open;
  double at = 0;                 ///< when it was over; 0: now
  std::string step{};            ///< step_text(); empty: none
  double begin = 0;              ///< the program's call began
  BlockedParts blocked{};        ///< the program waited since the last event that tells of it
  bool stays_in_memory = false;  ///< of `checkpoint`: it does not become a set
  bool tells_blocked = false;    ///< it does
  uint64_t bytes = 0;            ///< of the rank's snapshot, or of the group, or sent
  uint64_t copied_bytes = 0;     ///< of the snapshot
  uint64_t stored_bytes = 0;     ///< written
  double work_begin = 0;         ///< the checkpoint thread began
  double work_seconds = 0;       ///< it was at work
  double processor_seconds = 0;  ///< and its threads used the processors
  WorkTimes times{};             ///< for this
  std::string place{};           ///< the level; of `open` all of them, one a line
  std::string why{};             ///< what went wrong, or how it ended
  uint64_t count = 0;            ///< of `open`: ranks; of `restart`: newer ones passed over; of `end`: events lost
  std::string host{};            ///< of `open`
  ProcessIdentity process{};     ///< of `open`
};

/// As the log has it: one JSON object, and the newline.
std::string run_event_line(const RunEvent& event, std::string_view run);

/// Where a job's log may be, by preference, with options of this meaning: a run writes the first. Of `timeline = auto`
/// beside the sets of levels that are folders: of those that all nodes see the farthest first, then that of the node,
/// which is called `node` or has no name (LevelStore::path_of()).
std::vector<std::string> timeline_places(const Settings& settings, const std::string& node, const std::string& job);
/// The name of a job's log in a folder.
std::string timeline_path(const std::string& folder, const std::string& job);
/// Of the log before the newest one.
std::string older_timeline_path(const std::string& path);

/// A log is put aside when it would be larger, in place of the one that was put aside before.
inline constexpr uint64_t kTimelineBytesMax = 4_MiB;

/// Adds whole lines to a log. Its folder is made if need be, the folder above it is not. What a dead program left of a
/// line gets an end. Not durable. One process at a time.
Status append_to_timeline(const std::string& path, std::string_view lines);

}  // namespace varve
