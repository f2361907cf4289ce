#pragma once

#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "level/level.h"
#include "level/levels.h"
#include "level/restart_candidates.h"
#include "level/stored_image.h"
#include "snapshot/variable_table.h"
#include "varve/communicator.h"
#include "varve/status.h"

namespace varve {

/// Which of what there is may be taken.
struct RestartSelection {
  RestartChoice choice{};
  std::vector<RestartCandidate> rejected{};      ///< the program has found that these will not do
  std::optional<RestartCandidate> older_than{};  ///< only what was made before this one
  bool admits(const RestartCandidate& candidate) const;
  /// All that there is.
  bool is_open() const { return !choice.at_most && !choice.exactly && rejected.empty() && !older_than; }
};

/// A rank's side of a restart: its own part of what can be restarted from.
class RestartSide {
 public:
  virtual ~RestartSide() = default;
  /// Whether this rank's part is there, and fits what is protected, as far as a glance tells. Changes nothing.
  /// Collective, as load(). corrupt,
  /// not_found, io_error: it cannot be used, an older one may do. Anything else ends the restart; invalid_argument: it
  /// is of another number of ranks, or does not fit.
  virtual Status look(const RestartCandidate& candidate) = 0;
  /// All ranks have looked: whether what they would take belongs together. Collective; outcomes as above.
  virtual Status check_together() { return {}; }
  /// Puts what was looked at last where it belongs, and checks all of it on the way. After all ranks have looked, and
  /// collective, as ranks may read for each other; outcomes as above. From its begin on what is protected is neither
  /// old nor new.
  virtual Status load() = 0;
  /// The run that made what was looked at last, if not all ranks have it from one set: only parts of one run belong
  /// together. On all ranks or on none.
  virtual std::optional<SetOrigin> origin() const { return std::nullopt; }
  /// All ranks have loaded it: has the program take it over.
  virtual Status finish() = 0;
  /// Has this rank's part in making a set of a store whole again, in place, from wherever there are whole copies of
  /// what is damaged; whether it has changed anything. OK also if others have it all to do. After it look() may find
  /// the set whole.
  virtual Result<bool> mend(const RestartCandidate& candidate) = 0;
};

/// What became of a restart, the same on all ranks.
struct RestartDecision {
  std::optional<RestartCandidate> taken;      ///< none: there was nothing
  std::vector<RestartCandidate> passed_over;  ///< newer ones that could not be used, newest first
  /// Those of them in stores that are damaged for good.
  std::vector<RestartCandidate> damaged;
  /// And those of which something could not be read: they may be whole, and stay until a new one takes their place.
  std::vector<RestartCandidate> unreadable;
  std::vector<RestartCandidate> mended;  ///< sets in stores that were damaged, and are not any more
  std::vector<Status> warnings;          ///< what was wrong with all these, and on which ranks
};

/// Takes the first of `candidates` (the same on all ranks) that all ranks can use, and loads it on all. Each is read
/// once, straight to where it belongs; one that turns out to be damaged on the way is followed by the next, which takes
/// its place everywhere. Of a step of which none can be used, the damaged sets are mended, if possible, before an older
/// step is looked at; those of the step that is taken, afterwards. Collective.
///
/// invalid_argument ...: a rank refused one. corrupt: there are some, but none is whole on all ranks; io_error: the
/// same, but some could not be read, and may be whole. Where a rank had begun to load one when it failed, the error
/// says that what is protected is neither old nor new.
Result<RestartDecision> restart_from_newest(Communicator& ranks, const std::vector<RestartCandidate>& candidates,
                                            RestartSide& side);

/// A rank's side of a restart, from whatever level.
class RankRestart final : public RestartSide {
 public:
  RankRestart(Levels& levels, VariableTable& variables, RankWish wish)
      : levels_(levels), variables_(variables), wish_(std::move(wish)) {}

  Status look(const RestartCandidate& candidate) override;
  Status check_together() override;
  Status load() override;
  std::optional<SetOrigin> origin() const override { return image_ ? image_->origin() : std::nullopt; }
  Status finish() override;
  Result<bool> mend(const RestartCandidate& candidate) override;

  /// As RankImage::is_of_own_node(), of what was looked at last.
  bool image_is_of_own_node() const { return image_ == nullptr || image_->is_of_own_node(); }
  /// Whether some of what is protected has been written; the same on all ranks.
  bool touched() const { return touched_; }
  /// Whether something of what was loaded on this rank belongs to nothing that is protected.
  bool leaves_out() const { return leaves_out_; }

 private:
  Levels& levels_;
  VariableTable& variables_;
  /// At `candidate_`.
  Status look_again();
  /// Collective.
  Status look_divided_anew();

  RankWish wish_;
  RestartCandidate candidate_;  ///< what was looked at last, as the following
  std::unique_ptr<RankImage> image_;
  std::vector<Status> unwanted_;  ///< cells that no rank wants
  bool touched_ = false, leaves_out_ = false;
};

/// What a run goes on from.
struct RunRestart {
  std::optional<RestartCandidate> taken;  ///< none: there was nothing
  bool begins = false;                    ///< nothing is there to restart from: it is the job's first
  /// There was, but the first checkpoint never was on all nodes: the run begins anew, with the first set.
  bool begins_anew = false;
  /// What was taken is in memory alone, as far as one look tells: it is to stay until it, or a newer set, is in a
  /// store, however this run ends.
  bool in_memory_alone = false;
  /// So is something newer that was not rejected: it is to stay until this run, which goes back behind it or begins
  /// anew, has saved a set. So is what was taken, where a store has it, and cannot make its name durable.
  bool newer_in_memory_alone = false;
  /// The number of the next set, at least: what the run makes is newer than all that there is. What it goes on from in
  /// memory alone, and nothing is newer than that, keeps its number.
  uint64_t next_number = 1;
  /// Some rank protects less than that has: what this run would save of it is not all of it.
  bool leaves_out = false;
  /// What was taken lies where this run would have put it: on no other nodes, and not among others of their ranks.
  bool on_own_nodes = true;
  /// Of the nearest store, if something could not be read there: of which any rank could not read something.
  std::set<ArenaId> unreadable_arenas;
  size_t passed_over = 0;  ///< newer ones that could not be used
};

/// restart_from_newest() of what is selected of all that is at the levels, and what follows from it for them: what was
/// damaged, or is of a later step, may be replaced, what is near alone is to go far, too. Fails as that does;
/// not_found: there is no checkpoint of the step that was named; io_error also if a level could not be reached that may
/// have what was not found elsewhere. The same on all ranks. Collective.
Result<RunRestart> restart_from_levels(LevelWorld& world, Levels& levels, VariableTable& variables,
                                       const RestartSelection& selection = {});

}  // namespace varve
