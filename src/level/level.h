#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/file_system.h"
#include "core/progress.h"
#include "core/unique_id.h"
#include "format/image.h"
#include "level/element_owners.h"
#include "level/level_spec.h"
#include "level/set_completion.h"
#include "level/stored_image.h"
#include "service/location.h"
#include "snapshot/snapshot_reader.h"
#include "snapshot/variable_table.h"
#include "varve/communicator.h"
#include "varve/session.h"
#include "varve/status.h"

namespace varve {

/// A snapshot that a rank of a dead run left in the memory of a node.
struct MemoryStep {
  UniqueId run;  ///< whose memory it is
  uint64_t step = 0;
  uint32_t rank_count = 0;  ///< of that run
  uint32_t rank = 0;        ///< in that run
  UniqueId made_by{};       ///< CheckpointId::run
  uint64_t number = 0;      ///< CheckpointId::number
};

/// Something that all ranks could restart from.
struct RestartCandidate {
  uint64_t step = 0;
  std::optional<UniqueId> memory_run{};  ///< the nodes have that run's snapshots in memory; none: it is a store's set
  uint32_t level = 0;                    ///< ordinal of the level, nearest first
  std::string place = "the store";       ///< of the set, for people
  /// Which of the job's checkpoints it is (SetRecord::number): of a higher step with a lower number, a run has gone
  /// back behind it. Where none is known, that of the newest that it follows.
  uint64_t number = 0;
  uint32_t rank_count = 0;          ///< of the run that made it; 0: not known
  std::optional<int64_t> made_s{};  ///< since 1970, by the clock of who made it; none: not known
  UniqueId made_by{};               ///< the run that made it; zeros: not known
  bool is_known = true;             ///< false: a set of which nothing could be read
  bool operator==(const RestartCandidate&) const = default;

  /// "step 7 in memory", "step 7 in the store".
  std::string to_string() const;
  /// Whether both are copies of one checkpoint: a run that has gone back makes other ones of the same steps.
  bool is_same_checkpoint(const RestartCandidate& other) const;
};

class StoreLevel;
class ReshapedImage;

/// A node of a run.
struct SeatNode {
  std::string name;     ///< all differ
  uint32_t leader = 0;  ///< the rank that speaks for the node
};

/// Where a rank sits in its run, as far as levels go by it. A command sits alone.
struct RankSeat {
  std::vector<SeatNode> nodes{{}};  ///< in the order of their leaders
  uint32_t own_node = 0;
  uint32_t group = 0;          ///< ordinal of the own group (of ranks with one checkpoint thread) in all
  uint32_t group_of_node = 0;  ///< and in those of the node
  bool leads_group = true;
  const SeatNode& node() const { return nodes[own_node]; }
};

/// What work on a level's sets may take of a node.
struct LevelWork {
  uint64_t memory_bytes = 256_MiB;         ///< that one such work holds at most, about
  size_t load_threads = 1;                 ///< of a rank, while all load
  size_t push_threads = 1;                 ///< that work for what is copied beside the program
  std::function<void()> prepare_thread{};  ///< run first on each thread of levels: priority, place
};

/// What becomes of a set on its way to a level behind the nearest store, for who tells of it.
struct LevelNews {
  enum class What : uint8_t { begun, arrived, failed, given_up };
  What what = What::begun;
  std::string level{};             ///< its name
  std::optional<uint64_t> step{};  ///< none: the level failed as a whole
  uint64_t sent_bytes = 0;         ///< of what arrived
  Status why{};                    ///< it failed, or was given up
};

/// What all levels of a run share, or those of a command, which is like a run of one rank. Outlives them.
struct LevelWorld {
  Communicator& ranks;
  FileSystem& files;  ///< where folders are
  Clock& clock;
  WarningList& warnings;
  JobSets& sets;              ///< what is known of the job's sets on all nodes
  const LeftRuns& left_runs;  ///< of the job, dead, in the memory of this node
  std::string job{};          ///< of the run; a command may have to do with several
  ReachOptions reach{};       ///< of servers and buckets
  std::string node{};         ///< as VARVE_NODE says it, or empty: nodes on one machine have folders of their own
  std::string shared_memory{};
  bool has_node_level = false;  ///< each node has a store of its own, which is the nearest then
  LevelWork work{};
  UniqueId run{};             ///< once it is agreed on
  uint64_t first_number = 1;  ///< that its sets have
  /// Sets of earlier runs that no level showed when it began have numbers from the one on, and below the other.
  uint64_t unseen_from = 1, unseen_to = UINT64_MAX;
  RankSeat seat{};                  ///< when the ranks have found out who is where
  NodePacks* node_packs = nullptr;  ///< while ranks load, where several are on the node
  /// Asked, on any thread, before a level behind the nearest store is changed. None: nobody else may be at work.
  std::function<Status()> may_bring{};
  /// Told, on whatever thread, what this rank knows of levels behind the nearest store. None: nobody listens.
  std::function<void(const LevelNews&)> note_level{};
  /// The run is ended then, whatever it is at; none: it ends by itself. From the agreement to stop on.
  std::optional<Moment> end{};

  bool speaks_for_node() const { return seat.node().leader == ranks.rank(); }
};

/// A checkpoint that was to become a set of the nearest store.
struct NewSet {
  uint64_t step = 0;
  uint64_t number = 0;      ///< SetRecord::number
  bool everywhere = false;  ///< it goes to all levels, whatever their turn is
  Status outcome{};         ///< OK: it is complete there
};

/// What a rank wants back at a restart.
struct RankWish {
  uint32_t rank = 0, rank_count = 1;
  std::vector<WantedVariable> variables{};  ///< in the order of their names
  bool variables_may_change = false;        ///< as VariableTable::may_change()
  RankBoxes boxes{};                        ///< of arrays by whose cells vectors are divided
  bool all_alike = false;                   ///< all ranks want variables of the same names, by the same rules
  /// Though there are as many ranks as before, arrays are divided otherwise: vectors go to their elements' owners.
  bool divided_anew = false;
};

/// A rank's part of a checkpoint, at one level. One thread at a time.
class RankImage {
 public:
  virtual ~RankImage() = default;
  virtual const ImageTable& table() const = 0;
  /// Puts all of it where it belongs, and checks it on the way: after a failure some of it is there.
  virtual Status load(ImageTarget& target) = 0;
  /// The run that made it, if not all ranks have it from one set: only parts of one run belong together.
  virtual std::optional<SetOrigin> origin() const { return std::nullopt; }
  /// What of the checkpoint it leaves out, in words.
  virtual std::vector<Status> left_out() const { return {}; }
  /// Itself, if it is put together from what several ranks have saved.
  virtual const ReshapedImage* as_reshaped() const { return nullptr; }
  /// Whether it is what the rank's node, or a store that all share, has for the rank; else it is put together from what
  /// several nodes have. The same on all ranks.
  virtual bool is_of_own_node() const { return true; }
};

/// After what a level's work ends: the run is over, or start() goes on with what is given up now.
enum class Ending : uint8_t { of_run, pause };

/// What was found of a set at a restart.
enum class Found : uint8_t {
  damaged,      ///< for good
  unreadable,   ///< it may be whole all the same
  mended,       ///< it was damaged, and is not any more
  left_behind,  ///< it may be whole, and the run has gone back behind it: it stays until a new one takes its place
  on_course,    ///< the run goes on from it, or from what came of it: it is not left behind, or not any more
};

/// How far the run itself is, as levels know it from nowhere else.
struct RunNews {
  std::optional<uint64_t> newest_snapshot{}, newest_saved{};
  uint64_t saving = 0;  ///< sets on their way to the nearest store
  Status last_error{};  ///< of saving there
};

/// What a level has, for who looks at it from outside.
struct LevelContents {
  struct Job {
    std::string job;
    uint64_t sets = 0;
    std::optional<uint64_t> newest{};
    std::optional<uint64_t> behind{};  ///< so many sets the nearest store is ahead, if it can be reached
    std::optional<bool> is_running{};  ///< memory: a run of the job lives
  };
  std::vector<Job> jobs{};
  uint64_t bytes = 0;
  std::optional<uint64_t> free_bytes{};  ///< on its file system, or those of its servers; if that is known
};

/// A place of a job's checkpoints, as one rank has it: memory, a store, what protects one. All that a level does for a
/// set is here, so that a run is a loop over its levels, nearest first; each kind does its own, and leaves out what is
/// no matter of its own. Functions that are collective are called by all ranks, in the same order. On the program's
/// thread unless it says otherwise.
class Level {
 public:
  Level(LevelSpec spec, LevelWorld& world) : spec_(std::move(spec)), world_(world) {}
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;
  virtual ~Level() = default;

  const LevelSpec& spec() const { return spec_; }
  std::string name() const { return spec_.name(); }
  /// Itself, if it is a store.
  virtual StoreLevel* as_store() { return nullptr; }

  // To open it: in this order, collective

  /// What all ranks see from anywhere is looked for, and made if it is not there.
  virtual Status look() { return {}; }
  /// What each node has of its own. When the ranks know who is where, the farthest level first: what protects a store
  /// rebuilds it before it is opened.
  virtual Status prepare_on_node() { return {}; }
  /// Opens that with which this rank works.
  virtual Status open() { return {}; }
  /// Starts what works beside the program.
  virtual Status start() { return {}; }

  // A restart: hold what can be restarted from, list it, load it

  /// Checkpoints that are no sets of a store, as far as this rank is the one to tell of them.
  virtual std::vector<MemoryStep> snapshots() const { return {}; }
  /// This rank's part of a candidate of this level, as far as a glance tells that it is there. corrupt, not_found,
  /// io_error: it cannot be used. Where it was made by another number of ranks, or divided in another way, it is put
  /// together for `wish` from what those had (ReshapedImage). Collective, as is then its load(), where each node has
  /// something of its own.
  virtual Result<std::unique_ptr<RankImage>> image(const RestartCandidate& candidate, const RankWish& wish) = 0;
  /// What ranks have saved of a candidate of this level, as far as this rank is the one to tell; by rank.
  virtual Result<std::map<uint32_t, ImageTable>> tables(const RestartCandidate& /*candidate*/) {
    return std::map<uint32_t, ImageTable>();
  }
  /// What is known now of a set, here (`at` is this level) or at another one.
  virtual void note_found(const Level& /*at*/, uint64_t /*step*/, Found /*found*/) {}

  // Sets of a run: accept and protect them, hold what others are to get. Any thread

  /// By the thread that saves sets to the nearest store, after each.
  virtual void accept(const NewSet& /*set*/) {}
  /// The set will never be complete: it is owed no more.
  virtual void forget(uint64_t /*step*/) {}
  /// Whether nearer levels must hold the set until this one has it.
  virtual bool owes(uint64_t /*step*/, uint64_t /*number*/) const { return false; }
  /// The same of a set that lies in the nearest store, but was not accepted: somebody else has saved it there.
  virtual bool has_overlooked(uint64_t /*step*/, uint64_t /*number*/) { return false; }
  /// Whether this level makes the set, which is in the nearest store, outlast the loss of nodes.
  virtual bool protects(uint64_t /*step*/) const { return false; }
  /// Before the nearest store drops a set; where this fails, the set stays.
  virtual Status before_drop(uint64_t /*step*/) { return {}; }
  virtual LevelProgress progress(const RunNews& run) const = 0;

  // The end

  /// No more sets come from this rank.
  virtual void stop() {}
  /// Tries what waits once more; `last`: the run's last set, which goes here whatever its turn is. busy: time ran out.
  virtual Status finish(const std::optional<NewSet>& /*last*/, Moment /*end*/) { return {}; }
  /// Gives up what is on its way. After it: the last error, if anything was left out.
  virtual Status end(Ending /*ending*/) { return {}; }

  /// What is here, for who looks at it from outside. `nearest`: the nearest store; null if it cannot be reached.
  virtual Result<LevelContents> contents(const Store* nearest) = 0;

 protected:
  const LevelSpec spec_;
  LevelWorld& world_;
};

}  // namespace varve
