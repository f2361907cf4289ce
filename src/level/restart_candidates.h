#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "level/level.h"
#include "level/levels.h"
#include "varve/communicator.h"
#include "varve/status.h"

namespace varve {

/// A set in a store.
struct StoredStep {
  uint64_t step = 0;
  uint64_t number = 0;      ///< SetRecord::number; 0: not known
  uint32_t rank_count = 0;  ///< of the run that made it; 0: not known
  int64_t made_s = 0;       ///< SetRecord::created_s; 0: not known
  UniqueId made_by{};       ///< SetRecord::run
};

/// The sets in a store, nearest store first.
struct StoreSteps {
  std::vector<StoredStep> steps{};
  std::string place = "the store";  ///< for people
  uint32_t level = 0;               ///< ordinal of the level
};

/// What there is: the one that was made last first, and of one checkpoint what is in memory first, then what is in the
/// nearest store. Of memory only that counts of which all ranks' snapshots are there, of the same run: those of
/// different runs do not belong together. A set counts if any rank sees it. What was made last has the highest number,
/// and of one number the highest step (CheckpointId::number); where numbers are not known, steps tell.
std::vector<RestartCandidate> restart_candidates(const std::vector<MemoryStep>& memory,
                                                 const std::vector<StoreSteps>& stores);

/// The same on all ranks: each tells what it is the one to tell of in memory, and which sets it sees in the stores,
/// whose places are the same on all. Of a store that all ranks share, one rank's word is enough. Collective.
Result<std::vector<RestartCandidate>> agree_on_candidates(Communicator& ranks, const std::vector<MemoryStep>& memory,
                                                          std::vector<StoreSteps> stores);

/// The number of a run's first set: `next` behind all that its levels show, or a far higher one, by the calendar. Then
/// it is also behind what earlier runs gave out that no level shows: on nodes that are not this run's, or in a level
/// that is away; unless a calendar was wrong by as long as the runs began one after the other. Of `next` and the
/// number, the rests by each level's `every` are the same, so that turns go on.
uint64_t number_by_time(uint64_t next, const std::vector<LevelSpec>& levels, double seconds_since_1970);

/// What earlier runs have left: which sets all nodes have (noted in the world's sets), and with which number this one
/// begins, as far as the levels can be asked (StoreLevel::note_unasked()): LevelWorld::first_number, unseen_from,
/// unseen_to. Collective.
Status learn_earlier_sets(const Levels& levels);

/// The number of a set that is newer than all that dead runs have left in memory. Collective.
Result<uint64_t> number_behind_snapshots(const Levels& levels);

/// Looks anew which sets all nodes have, if each has a store of its own, while nobody drops any. Collective.
Status learn_complete_sets(const Levels& levels);

/// What all ranks could restart from at these levels. Collective.
Result<std::vector<RestartCandidate>> find_candidates(const Levels& levels);

/// Whether none of these ever was a whole checkpoint, so that a run may begin anew; what is left of them may be
/// replaced then. Collective.
Result<bool> never_were_whole(Levels& levels, const std::vector<RestartCandidate>& candidates);

/// io_error if a level is away: there may be a checkpoint in it that is not seen. Collective.
Status check_all_were_reached(const Levels& levels);

/// The run goes on from a set of the nearest store: to each level behind that has it not among `candidates`, it goes.
void bring_behind(const Levels& levels, const RestartCandidate& taken, const std::vector<RestartCandidate>& candidates);

}  // namespace varve
