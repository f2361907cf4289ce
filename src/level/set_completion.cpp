#include "level/set_completion.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "comm/agreement.h"
#include "comm/gather.h"
#include "core/bytes.h"
#include "core/guarded.h"
#include "level/retention.h"
#include "level/stored_image.h"
#include "store/catalog.h"

namespace varve {

namespace {
/// A store that fails so often in a row is not waited for.
constexpr uint32_t kFailuresMax = 5;
}  // namespace

void SetCompletion::note_told(std::span<const ByteVector> parts) {
  const ScoreFunction& score = store_.score();
  std::vector<SetRecord> records;
  PartName part = own_;
  for (part.ordinal = 0; part.ordinal < parts.size(); ++part.ordinal) {
    Result<SetRecord> record = decode_part(store_, part, parts[part.ordinal]);
    if (!record.ok() || record->run != part_.run || record->number != part_.number) return;
    // A run that went back makes a step again: what was told of it before is not what lies there now.
    if (part.ordinal == own_.ordinal && encode_set_record(*record, score) != encode_set_record(part_, score)) return;
    records.push_back(std::move(*record));
  }
  if (records.size() == own_.count) told_ = std::move(records);
}

Result<std::optional<SetCompletion::Set>> SetCompletion::try_now() {
  VARVE_ASSIGN(const std::unique_ptr<PowerWatch> power, store_.backend().watch_power());
  VARVE_ASSIGN(std::optional<Set> set, attempt());
  // Another maker may never have come to its sync.
  if (set && !set->by_us) VARVE_TRY(Catalog(store_).make_durable(own_.set.job));
  return set;
}

Result<std::optional<SetCompletion::Set>> SetCompletion::attempt() {
  // Only once: should it fail, what is there is looked at.
  const std::optional<std::vector<SetRecord>> told = std::exchange(told_, std::nullopt);
  if (!told) {
    const Result<ListedParts> parts = list_all_parts(store_);
    if (parts.ok() && parts->has(own_) && !parts->has_all_of(own_)) {
      // Parts also go when somebody else has made the set of them, one after the other.
      const Result<std::optional<Set>> waits = wait_for_others(*parts);
      if (!waits.ok()) return look_at_catalog(waits.status());
      if (names_ == PartNames::used_once) return waits;
      // What an earlier run had pushed may have become the set meanwhile, so that some push nothing more.
      Result<std::optional<Set>> found = look_at_catalog(Status::not_found("others' parts are missing"));
      if (found.ok() && *found) withdraw().ignore("a prune removes it when it is old");
      return found;
    }
  }
  Result<SetRecord> made =
      complete_set(store_, own_.run, own_.set, own_.count, if_exists_, names_, told ? &*told : nullptr);
  if (made.ok()) return std::optional(Set{std::move(*made), true});
  const Status why = made.status();
  if (why.code() == StatusCode::busy) return std::optional<Set>();
  const bool early = why.code() == StatusCode::not_found || why.code() == StatusCode::already_exists;
  if (!early && ++failures_ >= kFailuresMax) return why;
  if (early) failures_ = 0;
  VARVE_ASSIGN(std::optional<Set> found, look_at_catalog(why));
  // It may be ours, whose name a failed sync has not made durable; and what was lost then no later sync brings back.
  if (found && !early) return why;
  return found;
}

Result<std::optional<SetCompletion::Set>> SetCompletion::look_at_catalog(const Status& why) {
  const Result<SetRecord> there = Catalog(store_).read(own_.set);
  if (there.ok() && has_trees_of(*there, part_)) return std::optional(Set{*there, false});
  if (why.code() == StatusCode::already_exists && if_exists_ == IfExists::refuse && there.ok()) return why;
  return look_at_parts();
}

Result<std::optional<SetCompletion::Set>> SetCompletion::look_briefly() {
  const Result<SetRecord> there = Catalog(store_).read(own_.set);
  if (there.ok() && has_trees_of(*there, part_)) return std::optional(Set{*there, false});
  if (store_.backend().status(join_path(parts_path(store_), own_.file_name())).ok()) return std::optional<Set>();
  return look_at_parts();
}

/// Beside it there may be what the run has left behind, with higher steps.
bool SetCompletion::has_newer_of_run() const {
  const Catalog catalog(store_);
  constexpr int kLooksMax = 10;
  bool has_gone = true;
  for (int looks = 0; has_gone && looks < kLooksMax; ++looks) {
    has_gone = false;
    const Result<std::vector<uint64_t>> steps = catalog.steps(own_.set.job);
    if (!steps.ok()) return false;
    for (auto step = steps->rbegin(); step != steps->rend() && *step > own_.set.step; ++step) {
      const Result<SetRecord> newer = catalog.read({own_.set.job, *step});
      if (newer.ok() && (newer->run == own_.run || newer->run == part_.run)) return true;
      // The next one may have taken its place between both looks.
      has_gone = has_gone || newer.status().code() == StatusCode::not_found;
    }
  }
  return false;
}

Result<std::optional<SetCompletion::Set>> SetCompletion::look_at_parts() {
  const Result<ListedParts> parts = list_all_parts(store_);
  // Whatever keeps us from looking now may be over the next time.
  if (!parts.ok())
    return ++failures_ < kFailuresMax ? Result<std::optional<Set>>(std::optional<Set>()) : parts.status();
  if (!parts->has(own_)) {
    const Result<SetRecord> there = Catalog(store_).read(own_.set);
    if (there.ok() && has_trees_of(*there, part_)) return std::optional(Set{*there, false});
    // Parts go when their set is complete: it was, and a newer one of this run has taken its place since.
    if (there.status().code() == StatusCode::not_found && has_newer_of_run()) return std::optional(Set{part_, false});
    // Who was about to drop an older one of this step may have hidden it, and given it its name back by now.
    const Result<SetRecord> again = Catalog(store_).read(own_.set);
    if (again.ok() && has_trees_of(*again, part_)) return std::optional(Set{*again, false});
    return Status::not_found("the set was removed while it was being completed", own_.set.to_string());
  }
  return wait_for_others(*parts);
}

/// Nothing, unless somebody's part will not come.
Result<std::optional<SetCompletion::Set>> SetCompletion::wait_for_others(const ListedParts& parts) const {
  VARVE_TRY(failure_of_others(parts));
  for (const PartName& part : parts.delivered) {
    if (part.run != own_.run || part.set.job != own_.set.job || part.set.step <= own_.set.step) continue;
    PartName missing = own_;
    missing.ordinal = part.ordinal;
    if (parts.has(missing)) continue;
    return Status::io_error(fmt::format("group {} of {} did not write its part", part.ordinal + 1, own_.count),
                            own_.set.to_string());
  }
  return std::optional<Set>();
}

/// What another group has told.
Status SetCompletion::failure_of_others(const ListedParts& parts) const {
  for (const PartName& failed : parts.failed) {
    if (failed.run != own_.run || failed.set != own_.set || failed.count != own_.count) continue;
    return read_failure(store_, failed)
        .with_context(fmt::format("group {} of {} could not write its part", failed.ordinal + 1, own_.count));
  }
  return {};
}

std::vector<uint32_t> SetCompletion::missing() const {
  const Result<ListedParts> parts = list_all_parts(store_);
  std::vector<uint32_t> missing;
  PartName part = own_;
  for (part.ordinal = 0; parts.ok() && part.ordinal < own_.count; ++part.ordinal) {
    if (!parts->has(part)) missing.push_back(part.ordinal);
  }
  return missing;
}

Status SetCompletion::withdraw() { return remove_part(store_, own_); }

namespace {
/// Between looks whether the other parts of a set are there: from the first to the last.
constexpr std::chrono::milliseconds kFirstPause(200), kLongestPause(10'000);

void withdraw_part_of(SetCompletion& completion) { completion.withdraw().ignore("a prune removes it when it is old"); }
}  // namespace

void WaitingParts::add(uint64_t step, std::unique_ptr<SetCompletion> completion) {
  pause_ = kFirstPause;
  parts_.push_back({step, std::move(completion)});
}

std::optional<std::chrono::milliseconds> WaitingParts::pause() const {
  return parts_.empty() ? std::nullopt : std::optional(pause_);
}

void WaitingParts::lengthen_pause() { pause_ = std::min(2 * pause_, kLongestPause); }

WaitingParts::News WaitingParts::look() {
  News news;
  std::erase_if(parts_, [&](const Published& part) {
    const Result<std::optional<SetCompletion::Set>> set = run_guarded([&] { return part.completion->try_now(); });
    if (set.ok() && !*set) return false;
    if (set.ok()) {
      news.complete.push_back(part.step);
    } else {
      withdraw_part_of(*part.completion);
      news.failed.emplace_back(part.step, set.status());
    }
    return true;
  });
  return news;
}

std::vector<uint64_t> WaitingParts::withdraw() {
  std::vector<uint64_t> steps;
  for (const Published& part : parts_) {
    withdraw_part_of(*part.completion);
    steps.push_back(part.step);
  }
  parts_.clear();
  return steps;
}

GroupSiblings::GroupSiblings(const std::vector<SegmentOwner>& leaders) {
  for (const SegmentOwner& leader : leaders) {
    Result<ControlBlock> control = ControlBlock::open(leader, SharedSegment::Access::read);
    // What cannot be seen is not known: completion then rests on the store alone.
    if (control.ok()) leaders_.push_back(std::move(*control));
  }
}

bool GroupSiblings::any_is_done_with(uint64_t step) const {
  return std::any_of(leaders_.begin(), leaders_.end(), [step](const ControlBlock& leader) {
    const std::optional<GroupNews> news = leader.news();
    return (news && news->finished_step && *news->finished_step >= step) || !leader.owner_alive();
  });
}

void JobSets::note_begin(uint64_t step) {
  const MutexLock lock(mutex_);
  // It takes the place of what was left behind.
  if (left_behind_.erase(step) > 0) complete_.erase(step);
  never_complete_.erase(step);
  told_.push_back({step, Part::on_its_way});
  if (told_.size() > kTold) told_.pop_front();
}

void JobSets::go_on_from(std::optional<uint64_t> step) {
  const MutexLock lock(mutex_);
  left_behind_.clear();
  left_behind_.insert(step ? complete_.upper_bound(*step) : complete_.begin(), complete_.end());
}

void JobSets::note_on_trial(std::optional<uint64_t> step) {
  const MutexLock lock(mutex_);
  on_trial_ = step;
  if (step) never_complete_.erase(*step);  // it was found whole, whatever somebody has told of it
}

bool JobSets::is_on_trial(uint64_t step) const {
  const MutexLock lock(mutex_);
  return on_trial_ == step;
}

void JobSets::forget_told() {
  const MutexLock lock(mutex_);
  told_.clear();
}

void JobSets::note_published(uint64_t step, bool makes_sets) {
  note(step, makes_sets ? Part::to_be_completed : Part::saved);
}

void JobSets::note_own(uint64_t step, bool saved) { note(step, saved ? Part::saved : Part::failed); }

void JobSets::note(uint64_t step, Part own) {
  const MutexLock lock(mutex_);
  for (Told& told : told_) {
    if (told.step == step) told.own = own;
  }
}

void JobSets::note_complete(uint64_t step) {
  const MutexLock lock(mutex_);
  complete_.insert(step);
  never_complete_.erase(step);
}

void JobSets::note_all_complete(const std::vector<uint64_t>& steps) {
  const MutexLock lock(mutex_);
  complete_ = {steps.begin(), steps.end()};
  for (const uint64_t step : steps) never_complete_.erase(step);
}

void JobSets::note_incomplete(uint64_t step) {
  const MutexLock lock(mutex_);
  complete_.erase(step);
}

void JobSets::note_dropped(uint64_t step) {
  const MutexLock lock(mutex_);
  // Older ones may have made room for it.
  complete_.clear();
  left_behind_.erase(step);
  told_.clear();
}

std::vector<uint64_t> JobSets::tell(bool leads_group) const {
  const MutexLock lock(mutex_);
  std::vector<uint64_t> parts(kTold, static_cast<uint64_t>(Part::saved));
  if (!leads_group) return parts;
  for (size_t i = 0; i < told_.size(); ++i) parts[i] = static_cast<uint64_t>(told_[i].own);
  return parts;
}

JobSets::News JobSets::learn(std::span<const uint64_t> told) {
  const MutexLock lock(mutex_);
  News news;
  for (size_t i = 0; i < std::min(told.size(), told_.size()); ++i) {
    const uint64_t step = told_[i].step;
    news.any_saved = news.any_saved || told[i] == static_cast<uint64_t>(Part::saved);
    if (told[i] == static_cast<uint64_t>(Part::saved) && complete_.insert(step).second) news.complete.push_back(step);
    if (told[i] == static_cast<uint64_t>(Part::to_be_completed)) news.all_there.push_back(step);
    if (told[i] == static_cast<uint64_t>(Part::failed) && never_complete_.insert(step).second)
      news.failed.push_back(step);
  }
  return news;
}

bool JobSets::is_complete(uint64_t step) const {
  const MutexLock lock(mutex_);
  return complete_.contains(step);
}

bool JobSets::is_never_complete(uint64_t step) const {
  const MutexLock lock(mutex_);
  return never_complete_.contains(step);
}

std::optional<uint64_t> JobSets::newest_complete() const {
  const MutexLock lock(mutex_);
  const auto newest = std::find_if(complete_.rbegin(), complete_.rend(), [this](uint64_t step) VARVE_REQUIRES(mutex_) {
    return !left_behind_.contains(step);
  });
  return newest == complete_.rend() ? std::nullopt : std::optional(*newest);
}

namespace {
/// What the nodes have of a step together.
struct OnNodes {
  std::set<UniqueId> runs;
  uint64_t nodes = 0, ranks = 0, run_ranks = 0;
};

/// Of each set that can be read.
Result<ByteVector> describe(const Store& store, Clock& clock, const std::string& job) {
  PatientReads reads(store, clock);
  VARVE_ASSIGN(const std::vector<uint64_t> steps, reads([&] { return Catalog(store).steps(job); }));
  ByteVector told;
  ByteWriter out(told);
  for (const uint64_t step : steps) {
    const Result<SetRecord> record = reads([&] { return Catalog(store).read({job, step}); });
    if (!record.ok()) continue;
    out.varint(step);
    out.bytes(record->run.bytes);
    out.varint(record->rank_count);
    out.varint(record->run_ranks);
  }
  return told;
}

Status add(ByteSpan told, std::map<uint64_t, OnNodes>& sets) {
  ByteReader in(told);
  while (!in.at_end()) {
    VARVE_ASSIGN(const uint64_t step, in.varint());
    OnNodes& set = sets[step];
    VARVE_ASSIGN(const UniqueId run, UniqueId::read(in));
    set.runs.insert(run);
    ++set.nodes;
    VARVE_ASSIGN(const uint64_t ranks, in.varint());
    set.ranks += ranks;
    VARVE_ASSIGN(set.run_ranks, in.varint());
  }
  return {};
}
}  // namespace

Result<std::vector<uint64_t>> agree_on_complete_sets(Communicator& ranks, const Store* own, Clock& clock,
                                                     const std::string& job, size_t node_count) {
  Result<ByteVector> mine = ByteVector();
  if (own != nullptr) mine = describe(*own, clock, job);
  VARVE_TRY(agree(ranks, mine.status()));
  VARVE_ASSIGN(const std::vector<Told> told, gather_told(ranks, *mine));
  std::map<uint64_t, OnNodes> sets;
  for (const Told& of_rank : told) VARVE_TRY(add(of_rank.bytes, sets));
  std::vector<uint64_t> complete;
  for (const auto& [step, set] : sets) {
    const bool of_one_run = set.runs.size() == 1 && *set.runs.begin() != UniqueId();
    if (of_one_run && set.nodes == node_count && set.ranks == set.run_ranks) complete.push_back(step);
  }
  return complete;
}

}  // namespace varve
