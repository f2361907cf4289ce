#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/file_system.h"
#include "core/progress.h"
#include "level/levels.h"
#include "runtime/group_plan.h"
#include "runtime/settings.h"
#include "snapshot/node_note.h"
#include "store/job_lease.h"
#include "varve/status.h"

namespace varve {

/// What a run says of itself on this node, for who drains it: `world` is seated, and levels have been looked for.
NodeNote note_of_run(const Settings& settings, const LevelWorld& world, const Levels& levels, const GroupPlan& plan,
                     const std::vector<std::string>& spill_folders);

/// What dead runs have left on this node, and what is to be done about it.
struct NodeDrainOptions {
  std::string shared_memory = "/dev/shm";
  /// Where a run may have had its memory when there was no room; those are looked through that are in memory, as are
  /// those that runs name which are found.
  std::vector<std::string> spill_folders{};
  std::string job{};          ///< empty: all of this user's
  std::string node{};         ///< as VARVE_NODE says; empty: of all nodes on this machine
  std::string levels{};       ///< in place of those that the runs themselves name; empty: those
  double wait_seconds = 0;    ///< for what other nodes have to bring; and for another drain of this node to end
  uint32_t thread_count = 0;  ///< 0: as many as processors
  uint64_t memory_bytes = 256_MiB;
  ReachOptions reach{};  ///< of servers, where the runs say nothing
  FileSystem* files = &posix_file_system();
  Clock* clock = &steady_clock();
};

/// A set, or this node's part of one, that was brought to a level.
struct DrainedSet {
  enum class State : uint8_t {
    whole,      ///< it is there, for all to see
    part,       ///< this node's part is there, and lacks those of other nodes
    was_there,  ///< it was there before
    outdated,   ///< a run has made a whole set later, which is there
  };
  SetName name;
  std::string from;  ///< "memory", or the level's name
  std::string to;
  State state = State::whole;
};

/// What became of what the dead runs of one job have left.
struct DrainedJob {
  std::string job;
  std::string node;      ///< as VARVE_NODE says, or empty
  bool lives = false;    ///< a run of the job is at work, and brings everything on itself: nothing was touched
  bool is_done = false;  ///< all of it is at the next level, and nothing is left in memory
  std::vector<DrainedSet> sets;
  std::vector<Status> failures;  ///< what stays where it is, and why
};

/// Brings what dead runs have left on this node to the next level: snapshots in memory to the nearest store, and what
/// is in a store of the node's own, or owed to a level behind, on from there. Nothing of a run that lives is touched.
/// It does what the run's own checkpoint threads would have done, under the same names, so that it may be interrupted
/// at any moment, and done again, and each node may do its part whenever it likes: a set appears when the last part is
/// there, and never before. Memory is given back when a set that has all of it is whole in a store. Several may be
/// started at a time; one of them works. A run that starts meanwhile is waited for by nobody: the drain gives up what
/// is not there yet (RunSession::start()). What cannot be read is a failure, of a job without a name if nobody knows
/// whose it is; the rest is brought all the same.
Result<std::vector<DrainedJob>> drain_node(const NodeDrainOptions& options, ProgressSink& progress = null_progress());

}  // namespace varve
