#include "runtime/node_drain.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "core/guarded.h"
#include "core/patience.h"
#include "engine/save.h"
#include "engine/transfer.h"
#include "runtime/group_member.h"
#include "snapshot/snapshot_reader.h"
#include "store/job_lease.h"

namespace varve {

// What a run says of itself

namespace {
/// The level as it is known from any folder.
LevelSpec from_anywhere(LevelSpec spec) {
  const bool is_folder = spec.kind == &kNodeLevel || spec.kind == &kFolderLevel;
  std::error_code error;
  if (is_folder) spec.place = std::filesystem::absolute(spec.place, error).lexically_normal().string();
  return spec;
}
}  // namespace

NodeNote note_of_run(const Settings& settings, const LevelWorld& world, const Levels& levels, const GroupPlan& plan,
                     const std::vector<std::string>& spill_folders) {
  NodeNote note;
  note.run = world.run;
  note.rank_count = world.ranks.rank_count();
  note.job = settings.job;
  std::vector<LevelSpec> specs;
  for (const auto& level : levels.all()) specs.push_back(from_anywhere(level->spec()));
  note.levels = to_string(specs);
  note.node = world.node;
  note.node_ordinal = world.seat.own_node;
  note.node_count = static_cast<uint32_t>(world.seat.nodes.size());
  note.key_file = settings.reach.key_file;
  note.s3_endpoint = settings.reach.s3_endpoint;
  note.scheme = scheme_name(settings.saving.scheme);
  note.codec = settings.saving.codec.name();
  const std::vector<uint32_t> of_node = plan.groups_of_node();
  for (size_t i = 0; i < of_node.size(); ++i) {
    const RankGroup& group = plan.groups[of_node[i]];
    NodeNote::Group said{.ordinal = of_node[i], .count = plan.count(), .members = group.members};
    if (world.has_node_level) {
      said.ordinal = static_cast<uint32_t>(i);
      said.count = static_cast<uint32_t>(of_node.size());
    }
    said.crosses_nodes = !group.remote.empty();
    note.groups.push_back(std::move(said));
  }
  note.spill_folders = spill_folders;
  return note;
}

// Draining

namespace {
/// Between looks for what other nodes bring, and for runs that start.
constexpr double kDrainLookSeconds = 0.5;

/// Ends what is being done once a run of the job is started on this node.
class DrainProgress final : public ProgressSink {
 public:
  DrainProgress(const std::vector<SegmentFamily>& places, ProgressSink& inner, Clock& clock)
      : places_(places), inner_(inner), clock_(clock), looked_(clock.seconds()) {}
  void total(uint64_t bytes) override { inner_.total(bytes); }
  void advance(uint64_t bytes) override { inner_.advance(bytes); }
  void phase(std::string_view what) override { inner_.phase(what); }
  void warning(const Status& what) override { inner_.warning(what); }
  bool cancelled() const override { return inner_.cancelled() || run_has_come(); }

  /// busy: a run of the job lives on this node.
  Status check() const { return find_left_runs(places_, UniqueId()).status(); }

 private:
  bool run_has_come() const {
    const MutexLock lock(mutex_);
    const double now = clock_.seconds();
    if (!has_come_ && now - looked_ >= kDrainLookSeconds) {
      looked_ = now;
      has_come_ = check().code() == StatusCode::busy;
    }
    return has_come_;
  }

  const std::vector<SegmentFamily>& places_;
  ProgressSink& inner_;
  Clock& clock_;
  mutable Mutex mutex_;
  mutable double looked_ VARVE_GUARDED_BY(mutex_);
  mutable bool has_come_ VARVE_GUARDED_BY(mutex_) = false;
};

/// A dead rank's snapshot, whose checksums were looked at.
class LeftImage final : public DrainedImage {
 public:
  explicit LeftImage(std::unique_ptr<SnapshotReader> reader) : reader_(std::move(reader)) {}
  const ImageTable& image() const override { return reader_->image(); }
  Status read(uint64_t offset, MutableByteSpan into) override { return reader_->read(offset, into); }
  ByteSpan view(uint64_t offset, uint64_t bytes_max) override { return reader_->view(offset, bytes_max); }
  void leave_pages() override { reader_->leave_pages(); }
  void leave_pages(ByteSpan viewed) override { reader_->leave_pages(viewed); }
  // Nobody writes to what the dead have left; but memory that is bad shows itself here, rather than in a set.
  Status check_unchanged() override { return reader_->verify(); }

 private:
  const std::unique_ptr<SnapshotReader> reader_;
};

/// The levels of a dead run, as one process sees them that stands in for one of its nodes.
class DrainLevels {
 public:
  DrainLevels(const std::vector<LevelSpec>& specs, const NodeDrainOptions& options, const NodeNote& note)
      : world_{.ranks = *alone_,
               .files = *options.files,
               .clock = *options.clock,
               .warnings = warnings_,
               .sets = sets_,
               .left_runs = left_runs_,
               .job = note.job,
               .reach = reach_of(options, note),
               .node = note.node,
               .shared_memory = options.shared_memory},
        levels_(specs, world_) {}

  /// The nearest has to be there, as the run has saved to it; one behind it may have been away all the time.
  Status reach() {
    for (StoreLevel* const level : levels_.stores()) {
      const bool is_nearest = level->access().is_nearest();
      const Status reached = level->access().reach(/*makes=*/!is_nearest);
      if (is_nearest) VARVE_TRY(reached.with_context("level " + level->name()));
    }
    return {};
  }

  Levels& levels() { return levels_; }
  StoreLevel& nearest() { return levels_.nearest(); }
  const Store& nearest_store() { return *levels_.nearest().access().opened(); }

 private:
  static ReachOptions reach_of(const NodeDrainOptions& options, const NodeNote& note) {
    ReachOptions reach = options.reach;
    if (reach.key_file.empty()) reach.key_file = note.key_file;
    if (reach.s3_endpoint.empty()) reach.s3_endpoint = note.s3_endpoint;
    return reach;
  }

  const std::unique_ptr<Communicator> alone_ = make_single_communicator();
  WarningList warnings_;
  JobSets sets_;
  const LeftRuns left_runs_;
  LevelWorld world_;
  Levels levels_;
};

/// Whether the note's processes were, or are, that run.
bool is_own(const FoundNote& found, const UniqueId& run) {
  const std::vector<NodeNote::Earlier>& earlier = found.note.earlier;
  return run == found.note.run || run == found.speaker.run ||
         std::any_of(earlier.begin(), earlier.end(), [&](const NodeNote::Earlier& one) { return run == one.run; });
}

/// Whether its processes have made it, and not left it behind.
bool made_by(const NodeNote& note, const SetRecord& record) {
  return record.run == note.run ||
         std::any_of(note.earlier.begin(), note.earlier.end(), [&](const NodeNote::Earlier& one) {
           return record.run == one.run && record.name.step <= one.last_step && record.number <= one.last_number;
         });
}

/// What one dead run has left on this node.
class RunDrain {
 public:
  /// `notes`: of all of the job's runs here, among them `found`.
  RunDrain(const NodeDrainOptions& options, const std::vector<FoundNote>& notes, const FoundNote& found,
           const LeftRuns& left, DrainLevels& levels, DrainProgress& progress, DrainedJob& job)
      : options_(options),
        notes_(notes),
        found_(found),
        note_(found.note),
        speaker_(found.speaker),
        left_(left),
        levels_(levels),
        progress_(progress),
        job_(job),
        patience_(*options.clock) {}

  void run() {
    save_snapshots();
    if (levels_.nearest().spec().is_of_node() && note_.node_count > 1) {
      push_parts();
      await_others();
    } else {
      await_others();
      push_sets();
    }
    give_memory_back();
  }

 private:
  /// A set that lacks parts of others.
  struct Pending {
    StoreLevel* level = nullptr;
    SetName name;
    uint32_t count = 1;
    IfExists if_exists = IfExists::refuse;
    size_t reported = 0;  ///< index into the job's sets
  };
  using Step = std::map<uint32_t, LeftSnapshot>;  ///< by rank

  void fail(const Status& why) { job_.failures.push_back(why); }
  void fail_once(const Status& why) {
    if (told_.insert(why.to_string()).second) fail(why);
  }
  template <class Read>
  auto patiently(const Read& read) {
    return patience_(read, [] {});
  }
  Status may_publish() const;
  /// Which number a snapshot's set gets.
  struct SetNumber {
    uint64_t saved = 0;  ///< 0: not known
    /// That it had when it was made, by which it is known to be older than others' sets. 0: as well.
    uint64_t made = 0;
  };
  bool is_own(const UniqueId& run) const { return varve::is_own(found_, run); }
  bool made_here(const SetRecord& record) const { return made_by(note_, record); }
  bool is_copied(const SetRecord& record) const;
  Status note_left_behind();
  Result<bool> has_later(uint64_t step, const SetNumber& number);
  Result<SetNumber> number_of(const CheckpointId& checkpoint) const;
  std::map<uint64_t, Step> steps_in_memory() const;
  void save_snapshots();
  Status save_step(uint64_t step, const Step& snapshots);
  Result<uint64_t> number_of_parts(const SetName& name);
  Result<bool> save_group(uint64_t step, const NodeNote::Group& group, const Step& snapshots, const SetNumber& number);
  void complete(Pending set, const std::string& from);
  Result<bool> try_to_complete(const Pending& set);
  Result<std::vector<SetRecord>> records_of_nearest(const std::function<bool(const SetRecord&)>& is_wanted);
  void push_parts();
  void push_older_parts(StoreLevel& next, const std::vector<SetRecord>& records);
  void push_part(StoreLevel& level, const SetRecord& record);
  Result<bool> has_it(const Store& there, const SetRecord& record);
  void await_others();
  void push_sets();
  void bring_newest();
  /// It, or what was made after it.
  bool is_whole_somewhere(const CheckpointId& checkpoint);
  void give_memory_back();
  TransferOptions transfer_options() const {
    TransferOptions options;
    options.thread_count = options_.thread_count;
    options.memory_bytes = options_.memory_bytes;
    options.may_publish = [this] { return may_publish(); };
    return options;
  }

  const NodeDrainOptions& options_;
  const std::vector<FoundNote>& notes_;
  const FoundNote& found_;
  const NodeNote& note_;
  const SegmentOwner& speaker_;
  const LeftRuns& left_;
  DrainLevels& levels_;
  DrainProgress& progress_;
  DrainedJob& job_;
  std::vector<Pending> pending_;
  std::set<uint64_t> outdated_;  ///< in memory: the nearest store has something later
  bool has_made_sets_ = false;
  Patience patience_;
  std::set<std::string> told_;  ///< of failures, what is met more than once
};

/// Asked before anything is made visible: a run that has started meanwhile goes on from what it has seen.
Status RunDrain::may_publish() const {
  VARVE_TRY(progress_.check());
  VARVE_ASSIGN(const std::optional<LeaseHolder> holder, living_run(levels_.levels(), note_.job, left_.runs));
  if (!holder) return {};
  return Status::busy(fmt::format("a run of the job is at work: {}", holder->to_string()), note_.job);
}

/// Whether it is what the run went on from, and was about to save as its own.
bool RunDrain::is_copied(const SetRecord& record) const {
  return note_.copies &&
         *note_.copies == CheckpointId{.step = record.name.step, .run = record.run, .number = record.number};
}

/// By any of the job's runs here, at all levels: it pushes nothing out there, and is not brought on. Nor is what may be
/// such, as it cannot be read.
Status RunDrain::note_left_behind() {
  for (StoreLevel* const level : levels_.levels().stores()) {
    if (level->access().opened() == nullptr) continue;
    const Catalog catalog(*level->access().opened());
    VARVE_ASSIGN(const std::vector<uint64_t> steps, patiently([&] { return catalog.steps(note_.job); }));
    for (const uint64_t step : steps) {
      const Result<SetRecord> record = patiently([&] { return catalog.read({note_.job, step}); });
      const auto has_left = [&](const FoundNote& one) {
        return varve::is_own(one, record->run) && !made_by(one.note, *record);
      };
      const StatusCode code = record.status().code();
      const bool is_unread = !record.ok() && code != StatusCode::not_found && code != StatusCode::corrupt;
      if (is_unread) fail_once(record.status().with_context(level->name()));
      if (is_unread || (record.ok() && std::any_of(notes_.begin(), notes_.end(), has_left)))
        levels_.levels().note_found(*level, step, Found::left_behind);
    }
  }
  return {};
}

/// Those of which ranks that were on this node have a snapshot. Of a step that the run went on from, and was about to
/// save anew as what it makes now, there may be two: the one that more ranks have, and of these what was there first,
/// as all nodes have that.
std::map<uint64_t, RunDrain::Step> RunDrain::steps_in_memory() const {
  std::map<uint64_t, std::map<UniqueId, Step>> made;  // by step, and by the run that has made them
  for (const LeftSnapshot& snapshot : left_.snapshots) {
    const CheckpointId& checkpoint = snapshot.checkpoint;
    if (snapshot.owner.run == speaker_.run)
      made[checkpoint.step][checkpoint.run].emplace(snapshot.owner.rank, snapshot);
  }
  const auto is_better = [this](const Step& a, const Step& b) {
    if (a.size() != b.size()) return a.size() > b.size();
    const CheckpointId &one = a.begin()->second.checkpoint, &other = b.begin()->second.checkpoint;
    const bool was_first = one.run != note_.run, other_was = other.run != note_.run;
    return was_first != other_was ? was_first : one.number < other.number;
  };
  std::map<uint64_t, Step> steps;
  for (auto& [step, by_run] : made) {
    for (auto& [run, snapshots] : by_run) {
      Step& chosen = steps[step];
      if (chosen.empty() || is_better(snapshots, chosen)) chosen = std::move(snapshots);
    }
  }
  return steps;
}

void RunDrain::save_snapshots() {
  for (const auto& [step, snapshots] : steps_in_memory()) {
    const SetName name{note_.job, step};
    const Status saved = run_guarded([&, step = step, &snapshots = snapshots] { return save_step(step, snapshots); });
    if (!saved.ok()) fail(saved.with_context(fmt::format("{} stays in memory", name.to_string())));
  }
}

/// Whether a whole set was made after this, by the same run or by one that has gone back behind it; what these
/// processes have left behind since does not count. A later run that has not seen this, as it was on other nodes, may
/// have given its first set the same number. What no run has made, as a folder that somebody has saved under the job's
/// name, is no later state of the program.
Result<bool> RunDrain::has_later(uint64_t step, const SetNumber& number) {
  if (number.made == 0) return false;
  const auto is_later = [&](const SetRecord& set) {
    if (set.run == UniqueId() || !set.has_all_ranks() || (is_own(set.run) && !made_here(set))) return false;
    const bool is_left = is_own(set.run) || std::count(left_.runs.begin(), left_.runs.end(), set.run) > 0;
    const bool follows = !is_left || (set.run == note_.run && set.name.step > step);
    const uint64_t own = is_left ? number.saved : std::min(number.saved, number.made);
    return set.number > own || (set.number == own && follows);
  };
  VARVE_ASSIGN(const std::vector<SetRecord> later, records_of_nearest(is_later));
  return !later.empty();
}

/// Of what was made before the run went back, and kept, it is that of the first set of what it makes since: the same on
/// all nodes. corrupt: who made it is not known.
Result<RunDrain::SetNumber> RunDrain::number_of(const CheckpointId& checkpoint) const {
  if (!is_own(checkpoint.run)) {
    return Status::corrupt("what the run says of itself does not fit what it has in memory",
                           SetName{note_.job, checkpoint.step}.to_string(),
                           "the next run of the job takes what is in memory");
  }
  const bool is_kept = checkpoint.run != note_.run && note_.first_number != 0;
  return SetNumber{.saved = is_kept ? note_.first_number : checkpoint.number, .made = checkpoint.number};
}

Status RunDrain::save_step(uint64_t step, const Step& snapshots) {
  StoreLevel& nearest = levels_.nearest();
  const Store& store = levels_.nearest_store();
  const SetName name{note_.job, step};
  const CheckpointId& checkpoint = snapshots.begin()->second.checkpoint;
  VARVE_ASSIGN(SetNumber number, number_of(checkpoint));
  const Result<SetRecord> there = patiently([&] { return Catalog(store).read(name); });
  if (!there.ok() && there.status().code() != StatusCode::not_found) return there.status();
  IfExists if_exists = IfExists::refuse;
  Status refused;
  if (there.ok()) {
    const bool is_of_these =
        is_own(there->run) || is_copied(*there) || std::count(left_.runs.begin(), left_.runs.end(), there->run) > 0;
    // The run has gone back behind it, and made the step anew, or was about to save what it went on from as its own.
    const bool is_older = there->run != note_.run && there->number != 0 && there->number < number.saved;
    // In a node's own store it may be this very checkpoint, which not all nodes have there.
    const bool is_this =
        (there->run == checkpoint.run && there->number == checkpoint.number) || made_here(*there) || is_copied(*there);
    if (is_of_these && is_older && (is_this || !nearest.spec().is_of_node())) {
      if_exists = IfExists::replace;
    } else if (is_of_these && !is_older) {
      job_.sets.push_back({name, "memory", nearest.name(), DrainedSet::State::was_there});
      return {};
    } else {
      // On nodes one after the other, neither the old set nor the new one may be whole in between.
      refused = Status::already_exists(
          fmt::format("{} has {} of this step", nearest.name(),
                      is_of_these ? "a set that the run has gone back behind" : "a set that another run made"),
          name.to_string(), "the next run of the job takes what is in memory");
    }
  }
  VARVE_ASSIGN(const bool is_outdated, has_later(step, number));
  if (is_outdated) {
    outdated_.insert(step);
    job_.sets.push_back({name, "memory", nearest.name(), DrainedSet::State::outdated});
    return {};
  }
  if (!refused.ok()) {
    job_.sets.push_back({name, "memory", nearest.name(), DrainedSet::State::was_there});
    return refused;
  }
  if (number.saved == 0) {
    VARVE_ASSIGN(number.saved, number_of_parts(name));
  }
  uint32_t count = 0;
  for (const NodeNote::Group& group : note_.groups) {
    VARVE_ASSIGN(const bool saved, save_group(step, group, snapshots, number));
    if (saved) count = group.count;
  }
  if (count > 0) complete({.level = &nearest, .name = name, .count = count, .if_exists = if_exists}, "memory");
  return {};
}

/// What other nodes have published of the set has it; else it is the job's next one.
Result<uint64_t> RunDrain::number_of_parts(const SetName& name) {
  const Store& store = levels_.nearest_store();
  VARVE_ASSIGN(const std::vector<PartName> parts, patiently([&] { return list_parts(store); }));
  for (const PartName& part : parts) {
    if (part.set != name || part.run != note_.run) continue;
    const Result<SetRecord> record = patiently([&] { return read_part(store, part); });
    if (record.ok()) return record->number;
    if (record.status().code() != StatusCode::not_found) return record.status();
  }
  return first_number_of_run(store, note_.job);
}

/// False: not all of the group's ranks have this step.
Result<bool> RunDrain::save_group(uint64_t step, const NodeNote::Group& group, const Step& snapshots,
                                  const SetNumber& number) {
  const PartName part{{note_.job, step}, note_.run, group.ordinal, group.count};
  if (group.crosses_nodes) {
    return Status::unsupported("some ranks of the group that saves together were on other nodes", part.to_string(),
                               "the next run of the job takes what is in memory; VARVE_GROUP=node lets it be drained");
  }
  std::vector<std::unique_ptr<LeftImage>> images;
  std::vector<SnapshotSource::Part> parts;
  for (const uint32_t rank : group.members) {
    const auto snapshot = snapshots.find(rank);
    if (snapshot == snapshots.end()) return false;
    VARVE_ASSIGN(std::unique_ptr<SnapshotReader> reader, snapshot->second.open_verified());
    images.push_back(std::make_unique<LeftImage>(std::move(reader)));
    parts.push_back({rank, images.back().get()});
  }
  std::optional<SetOrigin> origin;
  if (levels_.nearest().spec().is_of_node()) origin = SetOrigin{note_.run, note_.rank_count};
  SnapshotSource source(std::move(parts), calendar_seconds(), origin);
  SaveOptions save;
  VARVE_ASSIGN(save.scheme, parse_scheme(note_.scheme));
  VARVE_ASSIGN(save.codec, CodecPolicy::parse(note_.codec));
  save.variables.small_bytes = 0;  // as in the run: parts of one set are saved alike
  save.memory_bytes = options_.memory_bytes;
  save.thread_count = options_.thread_count;
  save.made_by = {.number = number.saved, .run = note_.run, .run_ranks = note_.rank_count};
  save.may_publish = [&]() -> Status {
    VARVE_TRY(may_publish());
    VARVE_ASSIGN(const bool is_outdated, has_later(step, number));
    return is_outdated ? Status::busy("a run of the job has gone on without it meanwhile", part.set.to_string())
                       : Status();
  };
  VARVE_TRY(may_publish());
  // The run may have told that it would not come, when it was stopped in the middle; or have left the part of what it
  // had made of this step before it went back.
  VARVE_TRY(remove_failure(levels_.nearest_store(), part));
  const Result<SetRecord> there = patiently([&] { return read_part(levels_.nearest_store(), part); });
  if (there.status().code() == StatusCode::io_error) return there.status();
  if (there.ok() && (there->number != number.saved || there->run != note_.run))
    VARVE_TRY(remove_part(levels_.nearest_store(), part));
  const Status saved = save_part(levels_.nearest().access().slowed(), source, part, save, progress_).status();
  // The run itself, or a drain that was interrupted, has come so far.
  if (saved.code() == StatusCode::already_exists) return true;
  VARVE_TRY(saved);
  return true;
}

/// True: the set is there.
Result<bool> RunDrain::try_to_complete(const Pending& set) {
  VARVE_TRY(may_publish());
  const Store& store = *set.level->access().opened();
  const Status made = complete_set(store, note_.run, set.name, set.count, set.if_exists).status();
  has_made_sets_ = has_made_sets_ || made.ok();
  if (made.ok()) return true;
  if (made.code() == StatusCode::not_found) return false;
  if (made.code() != StatusCode::already_exists) return made;
  if (set.if_exists == IfExists::refuse) return true;
  // It is the one that is to be replaced, unless another node's drain has done that.
  VARVE_ASSIGN(const SetRecord there, Catalog(store).read(set.name));
  return there.run == note_.run;
}

void RunDrain::complete(Pending set, const std::string& from) {
  const Result<bool> made = try_to_complete(set);
  if (!made.ok()) return fail(made.status().with_context(set.level->name()));
  set.reported = job_.sets.size();
  job_.sets.push_back({set.name, from, set.level->name(), *made ? DrainedSet::State::whole : DrainedSet::State::part});
  if (!*made) pending_.push_back(std::move(set));
}

// Onwards from a store of the node's own

/// Of the nearest store, those that are wanted, oldest first. One that cannot be read is none of them, and a failure.
Result<std::vector<SetRecord>> RunDrain::records_of_nearest(const std::function<bool(const SetRecord&)>& is_wanted) {
  const Catalog catalog(levels_.nearest_store());
  VARVE_ASSIGN(const std::vector<uint64_t> steps, patiently([&] { return catalog.steps(note_.job); }));
  std::vector<SetRecord> records;
  for (const uint64_t step : steps) {
    Result<SetRecord> record = patiently([&] { return catalog.read({note_.job, step}); });
    if (!record.ok() && record.status().code() != StatusCode::not_found)
      fail_once(record.status().with_context(levels_.nearest().name()));
    if (record.ok() && is_wanted(*record)) records.push_back(std::move(*record));
  }
  std::stable_sort(records.begin(), records.end(),
                   [](const SetRecord& a, const SetRecord& b) { return a.number < b.number; });
  return records;
}

/// What these processes have made there, oldest first. Sets of other runs are not this node's to bring: who was on
/// which node then is not known.
void RunDrain::push_parts() {
  const auto records = records_of_nearest([this](const SetRecord& record) { return made_here(record); });
  if (!records.ok()) return fail(records.status());
  bool is_next = true;
  for (StoreLevel* const level : levels_.levels().stores()) {
    if (level->access().is_nearest()) continue;
    for (const SetRecord& record : *records) {
      // The newest goes to the next level whatever its turn is: the node may not be there any more tomorrow.
      const bool must = is_next && record.name.step == records->back().name.step;
      if (must || is_due(level->spec(), record.number)) push_part(*level, record);
    }
    if (std::exchange(is_next, false) && records->size() > 1) push_older_parts(*level, *records);
  }
}

/// Where others do not bring their parts of the newest set, they may have none, as the run ended before they had. What
/// all nodes have is then an older one: the one before it, or one that others have brought.
void RunDrain::push_older_parts(StoreLevel& next, const std::vector<SetRecord>& records) {
  await_others();
  const auto lacks_others = [&](const SetRecord& record) {
    return std::any_of(pending_.begin(), pending_.end(),
                       [&](const Pending& one) { return one.level == &next && one.name == record.name; });
  };
  if (!lacks_others(records.back())) return;
  const Store& there = *next.access().opened();
  const auto others_have_it = [&](const SetName& name) {
    const Result<std::vector<PartName>> parts = patiently([&] { return list_parts(there); });
    if (!parts.ok()) fail_once(parts.status().with_context(next.name()));
    return parts.ok() && std::any_of(parts->begin(), parts->end(), [&](const PartName& part) {
             return part.set == name && part.run == note_.run && part.ordinal != note_.node_ordinal;
           });
  };
  for (auto record = std::next(records.rbegin()); record != records.rend() && !progress_.cancelled(); ++record) {
    const bool is_next_best = record == std::next(records.rbegin());
    if (!is_next_best && !others_have_it(record->name)) continue;
    push_part(next, *record);
    if (!lacks_others(*record)) return;
  }
}

void RunDrain::push_part(StoreLevel& level, const SetRecord& record) {
  const SetName name = record.name;
  const std::string from = levels_.nearest().name();
  const auto push = [&]() -> Status {
    if (level.access().opened() == nullptr) return level.access().why_away();
    const Store& to = *level.access().opened();
    VARVE_ASSIGN(const bool is_there, has_it(to, record));
    if (is_there) {
      job_.sets.push_back({name, from, level.name(), DrainedSet::State::was_there});
      return {};
    }
    const PartName part{name, note_.run, note_.node_ordinal, note_.node_count};
    VARVE_TRY(may_publish());
    VARVE_TRY(
        copy_part(levels_.nearest_store(), level.access().slowed(), part, transfer_options(), progress_).status());
    complete({.level = &level, .name = name, .count = note_.node_count}, from);
    return {};
  };
  const Status pushed = run_guarded(push);
  if (!pushed.ok()) fail(pushed.with_context(fmt::format("{} is not at {}", name.to_string(), level.name())));
}

/// Whether a farther level has the set that this is, or is a part of, or one that the run has made of this step later.
/// already_exists: it has another one, which only a run that goes on may replace.
Result<bool> RunDrain::has_it(const Store& there, const SetRecord& record) {
  const Result<SetRecord> known = patiently([&] { return Catalog(there).read(record.name); });
  if (known.status().code() == StatusCode::not_found) return false;
  VARVE_TRY(known.status());
  if (!known->has_all_ranks()) {
    return Status::already_exists("the share of one node alone is there under this name", record.name.to_string(),
                                  {Remedy::drop_set, record.name.to_string()});
  }
  const bool is_later = known->run == record.run && known->number >= record.number;
  if (is_later || has_trees_of(*known, record)) return true;
  const ContentComparison compared = compare_content(levels_.nearest_store(), record, there, *known);
  if (compared.sameness == Sameness::same) return true;
  if (compared.sameness == Sameness::unknown) {
    const bool is_here = !compared.source_unread.ok();
    return (is_here ? compared.source_unread : compared.there_unread)
        .with_context(fmt::format("a set of this step is there, and damage {} keeps it from being compared",
                                  is_here ? "here" : "there"));
  }
  return Status::already_exists("another set of this step is there, which the run has left behind",
                                record.name.to_string(), "start the program again, which replaces it");
}

/// Other nodes bring their parts when they come to it.
void RunDrain::await_others() {
  const double end = options_.clock->seconds() + options_.wait_seconds;
  while (!pending_.empty() && !progress_.cancelled() && options_.clock->seconds() < end) {
    options_.clock->sleep(kDrainLookSeconds);
    std::erase_if(pending_, [&](const Pending& one) {
      const Result<bool> made = try_to_complete(one);
      if (!made.ok()) fail(made.status().with_context(one.level->name()));
      if (made.ok() && *made) job_.sets[one.reported].state = DrainedSet::State::whole;
      return !made.ok() || *made;
    });
  }
  // What is older than a set that is whole there is no use any more, and would keep its space for ever.
  std::erase_if(pending_, [this](const Pending& one) {
    const Store& store = *one.level->access().opened();
    const Result<std::vector<uint64_t>> steps = Catalog(store).steps(note_.job);
    const bool is_outdated = steps.ok() && std::any_of(steps->begin(), steps->end(), [&](uint64_t step) {
                               if (step <= one.name.step) return false;
                               const Result<SetRecord> newer = Catalog(store).read({note_.job, step});
                               return newer.ok() && made_here(*newer);
                             });
    if (!is_outdated) return false;
    std::vector<uint32_t> own{note_.node_ordinal};
    if (one.level->access().is_nearest()) {
      own.clear();
      for (const NodeNote::Group& group : note_.groups) own.push_back(group.ordinal);
    }
    for (const uint32_t ordinal : own)
      remove_part(store, {one.name, note_.run, ordinal, one.count}).ignore("a prune removes it in time");
    return true;
  });
}

// Onwards from a store that has all ranks

void RunDrain::push_sets() {
  if (levels_.levels().stores().size() < 2) return;
  // One node does it for all: the first, or who has made a set just now.
  if (note_.node_ordinal != 0 && !has_made_sets_) return;
  if (const Status may = may_publish(); !may.ok()) return fail(may);
  if (const Status noted = note_left_behind(); !noted.ok()) return fail(noted);
  const Onward onward = bring_along(levels_.levels(), note_.job, progress_, left_.runs);
  for (const LevelCopy& copy : onward.copies)
    job_.sets.push_back({copy.name, levels_.nearest().name(), copy.level, DrainedSet::State::whole});
  for (const Status& failure : onward.failures) fail(failure);
  if (levels_.nearest().spec().is_of_node()) bring_newest();
}

/// To the next level whatever its turn is: the node may not be there any more tomorrow.
void RunDrain::bring_newest() {
  const Store& nearest = levels_.nearest_store();
  StoreLevel& next = *levels_.levels().stores()[1];
  const auto whole = records_of_nearest([this](const SetRecord& record) {
    return record.has_all_ranks() && !levels_.nearest().is_made_anew(record.name.step);
  });
  if (!whole.ok()) return fail(whole.status());
  if (whole->empty() || next.access().opened() == nullptr) return;
  const SetRecord& newest = whole->back();
  const SetName name = newest.name;
  const Result<bool> brought = run_guarded([&]() -> Result<bool> {
    VARVE_ASSIGN(const bool is_there, has_it(*next.access().opened(), newest));
    if (is_there) return false;
    VARVE_TRY(copy_set(nearest, next.access().slowed(), name, transfer_options(), progress_).status());
    return true;
  });
  if (!brought.ok())
    return fail(brought.status().with_context(fmt::format("{} is not at {}", name.to_string(), next.name())));
  if (*brought) job_.sets.push_back({name, levels_.nearest().name(), next.name(), DrainedSet::State::whole});
}

// The memory

bool RunDrain::is_whole_somewhere(const CheckpointId& checkpoint) {
  const uint64_t step = checkpoint.step;
  if (outdated_.contains(step)) return Catalog(levels_.nearest_store()).make_durable(note_.job).ok();
  for (const StoreLevel* const level : levels_.levels().stores()) {
    if (level->access().opened() == nullptr) continue;
    const Result<SetRecord> record = patiently([&] {
      return Catalog(*level->access().opened()).read({note_.job, step});
    });
    if (!record.ok() && record.status().code() != StatusCode::not_found)
      fail_once(record.status().with_context(level->name()));
    const bool is_it = record.ok() && (record->run == note_.run || record->run == checkpoint.run || is_copied(*record));
    if (!is_it || record->number < checkpoint.number || !record->has_all_ranks()) continue;
    // Who has committed it may not have come to that.
    if (Catalog(*level->access().opened()).make_durable(note_.job).ok()) return true;
  }
  return false;
}

void RunDrain::give_memory_back() {
  const std::map<uint64_t, Step> steps = steps_in_memory();
  size_t ranks_here = 0;
  for (const NodeNote::Group& group : note_.groups) ranks_here += group.members.size();
  // What not all ranks of this node have is no checkpoint.
  const auto newest =
      std::find_if(steps.rbegin(), steps.rend(), [&](const auto& step) { return step.second.size() == ranks_here; });
  const bool is_safe =
      newest == steps.rend() ? job_.failures.empty() : is_whole_somewhere(newest->second.begin()->second.checkpoint);
  if (!is_safe || !pending_.empty() || !job_.failures.empty()) return;
  if (const Status may = may_publish(); !may.ok()) return;
  const Status removed = remove_left_runs(speaker_.family, {speaker_.run});
  if (!removed.ok()) return fail(removed.with_context("the memory of a dead run could not be given back"));
  job_.is_done = true;
}

Status drain_job(const NodeDrainOptions& options, const std::vector<FoundNote>& notes,
                 const std::vector<SegmentFamily>& places, DrainedJob& job, ProgressSink& outer) {
  DrainProgress progress(places, outer, *options.clock);
  const Result<LeftRuns> left = find_left_runs(places, UniqueId());
  job.lives = left.status().code() == StatusCode::busy;
  if (job.lives) return {};
  VARVE_TRY(left.status());
  bool all_done = true;
  // The oldest first: numbers of sets say which was made last.
  for (const FoundNote& found : notes) {
    VARVE_ASSIGN(const std::vector<LevelSpec> specs,
                 parse_levels(options.levels.empty() ? found.note.levels : options.levels));
    DrainLevels levels(specs, options, found.note);
    VARVE_TRY(levels.reach());
    job.is_done = false;
    RunDrain(options, notes, found, *left, levels, progress, job).run();
    all_done = all_done && job.is_done;
  }
  job.is_done = all_done;
  return {};
}

/// Of all folders that have notes of the job; none: another process has one of them.
Result<std::vector<NodeDrainLock>> take_drain_locks(const std::vector<FoundNote>& notes) {
  std::map<std::string, SegmentFamily> families;
  for (const FoundNote& found : notes) families.emplace(found.speaker.family.folder, found.speaker.family);
  std::vector<NodeDrainLock> locks;
  for (const auto& [folder, family] : families) {
    VARVE_ASSIGN(std::optional<NodeDrainLock> lock, NodeDrainLock::try_take(family));
    if (!lock) return std::vector<NodeDrainLock>();
    locks.push_back(std::move(*lock));
  }
  return locks;
}

/// One drain of a job on a node at a time.
Status drain_job_alone(const NodeDrainOptions& options, const std::vector<FoundNote>& notes,
                       const std::vector<SegmentFamily>& places, DrainedJob& job, ProgressSink& progress) {
  const double end = options.clock->seconds() + options.wait_seconds;
  for (;;) {
    VARVE_ASSIGN(const std::vector<NodeDrainLock> locks, take_drain_locks(notes));
    if (!locks.empty()) return drain_job(options, notes, places, job, progress);
    if (progress.cancelled() || options.clock->seconds() >= end)
      return Status::busy("another process drains this job on this node", job.job,
                          "try again when it has come to its end");
    options.clock->sleep(kDrainLookSeconds);
  }
}

/// The notes of runs on this node, wherever they had their memory.
struct NotesOfNode {
  SegmentFamily home;            ///< of no job; with all spill folders that are known
  std::vector<FoundNote> notes;  ///< the oldest first
  std::vector<Status> unread, damaged;
};

NotesOfNode find_notes_of_node(const NodeDrainOptions& options) {
  NotesOfNode found;
  found.home = {options.shared_memory, static_cast<uint32_t>(::getuid()), {}, options.spill_folders};
  std::vector<std::string>& spill_folders = found.home.spill_folders;
  std::vector<SegmentFamily> places = found.home.memory_places();
  // What a run says may name further folders, which are behind those that are known.
  for (size_t i = 0; i < places.size(); ++i, places = found.home.memory_places()) {
    std::vector<Status> damaged;
    Result<std::vector<FoundNote>> here = find_node_notes(places[i].folder, damaged);
    if (!here.ok()) found.unread.push_back(here.status());
    for (Status& one : damaged) (one.code() == StatusCode::corrupt ? found.damaged : found.unread).push_back(one);
    if (!here.ok()) continue;
    for (FoundNote& one : *here) {
      for (const std::string& folder : one.note.spill_folders) {
        if (std::find(spill_folders.begin(), spill_folders.end(), folder) == spill_folders.end())
          spill_folders.push_back(folder);
      }
      found.notes.push_back(std::move(one));
    }
  }
  std::stable_sort(found.notes.begin(), found.notes.end(),
                   [](const FoundNote& a, const FoundNote& b) { return a.written_ns < b.written_ns; });
  return found;
}
}  // namespace

Result<std::vector<DrainedJob>> drain_node(const NodeDrainOptions& options, ProgressSink& progress) {
  NotesOfNode found = find_notes_of_node(options);
  for (const Status& one : found.damaged) progress.warning(one);
  std::map<std::string, std::vector<FoundNote>> by_job;  // by key: jobs of one name may save to different stores
  for (FoundNote& one : found.notes) {
    const bool is_meant =
        (options.job.empty() || one.note.job == options.job) && (options.node.empty() || one.note.node == options.node);
    if (is_meant) by_job[one.speaker.family.job_key].push_back(std::move(one));
  }
  std::vector<DrainedJob> jobs;
  for (const auto& [key, of_job] : by_job) {
    if (progress.cancelled()) break;
    DrainedJob& job = jobs.emplace_back();
    job.job = of_job.front().note.job;
    job.node = of_job.front().note.node;
    found.home.job_key = key;
    const Status drained = run_guarded(
        [&, &of_job = of_job] { return drain_job_alone(options, of_job, found.home.memory_places(), job, progress); });
    if (!drained.ok()) job.failures.push_back(drained);
  }
  if (!found.unread.empty()) {
    jobs.emplace_back().failures = std::move(found.unread);
  }
  return jobs;
}

}  // namespace varve
