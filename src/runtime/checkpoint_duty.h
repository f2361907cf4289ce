#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/sync.h"
#include "core/work_meter.h"
#include "engine/effort_pace.h"
#include "engine/save.h"
#include "level/level.h"
#include "level/level_spec.h"
#include "level/retention.h"
#include "level/stored_image.h"
#include "store/commit.h"

namespace varve {

/// What stage 2 of one checkpoint cost, and what came of it.
struct DrainReport {
  uint64_t step = 0;
  Status outcome;                 ///< OK: the set is complete in the store
  uint64_t bytes = 0;             ///< of the group
  uint64_t stored_bytes = 0;      ///< written for it
  double begin_seconds = 0;       ///< by the clock: the leader's checkpoint() began
  double work_begin_seconds = 0;  ///< the thread began to save it; 0: it never did
  double end_seconds = 0;         ///< the set was complete
  double drain_seconds = 0;       ///< at work
  double processor_seconds = 0;   ///< used by the thread and its workers
  WorkTimes times{};              ///< what they did meanwhile
  EffortOutcome effort{};         ///< how hard was compressed; nothing where that is not left to us
  bool may_come = false;          ///< it failed, but the part stays: the job's next run may make a set of it
};

/// A group among those of its run that save to one store.
struct SavingGroup {
  UniqueId run;
  std::string job;
  uint32_t ordinal = 0;
  uint32_t count = 1;  ///< of groups

  /// The first group makes the sets of what all have saved there, and does whatever else is done once for a store.
  bool makes_sets() const { return ordinal == 0; }
  SetName set_of(uint64_t step) const { return {job, step}; }
  PartName part_of(uint64_t step) const { return {set_of(step), run, ordinal, count}; }
};

/// What a group's checkpoint thread is to do.
struct CheckpointDuty {
  SavingGroup group;
  SaveOptions save;
  bool adapts_effort = false;       ///< the codecs of `save` are for when there is time
  bool has_processors = false;      ///< the thread and its workers have processors that the program does not use
  std::optional<SetOrigin> origin;  ///< to be told in sets that have not all ranks
  bool has_other_nodes = false;     ///< which make sets of what their ranks have saved, in stores of their own
  bool store_was_empty = false;     ///< it had no chunks when the run began
  Retention::Rules retention;       ///< of the store, if this group keeps it for all: the first one there
  double wait_seconds = 0;          ///< at most, for the other groups' parts of a set
  std::function<std::string(uint32_t ordinal)> group_name;  ///< of one among those that save to this store, for people
  /// What keeps older sets from making room: "3 sets wait for dir:/far". Empty: nothing.
  std::function<std::string()> what_waits;
  /// Of leaders of other groups on this node, those whose doing this one watches.
  std::vector<SegmentOwner> siblings;
  /// What a set may do to one of its step that is there.
  std::function<IfExists(uint64_t step)> policy_for;
  /// Asked before a part is saved, and before its set is made, by the group that makes it.
  std::function<Status()> may_save;
  std::function<void()> stop_slowing;              ///< what is being written was given up
  std::function<void()> prepare_thread;            ///< run first on the thread: its place
  std::function<void()> get_out_of_way;            ///< on a thread that has time: low priority. None: never
  std::function<void(const DrainReport&)> report;  ///< called on the thread after each checkpoint
  /// Called on the thread: the group's part of the set is there, and says this.
  std::function<void(uint64_t step, ByteVector part)> note_published;
  bool tells_parts = false;  ///< the groups tell each other what their parts say, when the program lets them
  /// Called on the thread for each checkpoint that was to be saved, before older sets are dropped; of those of which
  /// nobody had a snapshot, with the next one.
  std::function<void(const NewSet&)> accept;

  /// Whether the set takes the place of one of which other nodes have their share: no node gives the old one up before
  /// all have the new one's parts, so that at any moment one of both is whole.
  bool replaces_on_nodes(uint64_t step) const { return has_other_nodes && policy_for(step) == IfExists::replace; }
};

/// Whether stage 2 has time to spare, so that it may leave the processors to the program: if the last checkpoint was
/// written long before this one began. What is late is not put off further, since the program would wait for a thread
/// that it starves. One thread at a time.
class DrainPace {
 public:
  /// `now`: by the clock, when the program began.
  explicit DrainPace(double now = 0) : interval_begin_(now) {}
  /// A checkpoint that began then, by the clock, is going to be written. Whether there is time.
  bool begin(double begin_seconds);
  /// What compressing may take, on so many processors, so that the program is left alone for most of the time, and
  /// lacks little of them; where it does not use them, so that the next checkpoint does not wait for this one.
  SpareTime spare(bool has_processors, uint32_t processor_count) const;
  /// It was written.
  void end(double end_seconds) { last_end_ = end_seconds; }

 private:
  bool has_time_ = false;
  std::optional<double> last_begin_;
  double interval_begin_ = 0;  ///< of the one before this one, or of the program
  double last_end_ = 0;
};

/// What all ranks know of a set on its way to the store.
enum class SetState : uint8_t {
  on_its_way,
  all_there,  ///< all groups have published their parts
  complete,
  cut_off,   ///< the ranks cannot tell each other any more what becomes of it: others may know more of it
  given_up,  ///< if it is not complete, it will not be: some group failed
};

/// What the program's thread tells a checkpoint thread meanwhile. Thread-safe.
class CheckpointNotes {
 public:
  struct Begin {
    double seconds = 0;  ///< by the clock: the leader's checkpoint() began
    LevelDuty levels;    ///< as for all leaders
  };
  void note_begin(uint64_t step, const Begin& begin);
  /// All that have begun up to this step, and were not taken yet.
  std::map<uint64_t, Begin> take_begun(uint64_t step);

  /// New sets are not to refer to these arenas: they could not be read, and may never be again.
  void avoid(std::set<ArenaId> arenas);
  std::set<ArenaId> avoided() const;

  /// What is complete stays so. Of sets of long ago nothing is known any more.
  void note_set(uint64_t step, SetState state);
  SetState state_of(uint64_t step) const;
  /// Whether it was known at any time that all parts are there, on all nodes.
  bool were_all_there(uint64_t step) const;
  /// What the parts of a set say, for who makes it; once.
  void note_parts(uint64_t step, std::vector<ByteVector> parts);
  std::vector<ByteVector> take_parts(uint64_t step);

 private:
  mutable Mutex mutex_;
  std::map<uint64_t, Begin> begun_ VARVE_GUARDED_BY(mutex_);
  std::set<ArenaId> avoided_ VARVE_GUARDED_BY(mutex_);
  std::map<uint64_t, SetState> states_ VARVE_GUARDED_BY(mutex_);
  std::set<uint64_t> were_all_there_ VARVE_GUARDED_BY(mutex_);
  std::map<uint64_t, std::vector<ByteVector>> parts_ VARVE_GUARDED_BY(mutex_);  ///< of the newest sets
};

}  // namespace varve
