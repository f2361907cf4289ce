#include "runtime/restart.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <span>

#include "comm/agreement.h"
#include "comm/gather.h"
#include "core/guarded.h"
#include "core/nearest.h"
#include "level/left_parts.h"
#include "level/reshaped_image.h"
#include "redundancy/node_redundancy.h"

namespace varve {

namespace {
/// Whether an older candidate may do instead.
bool may_fall_back(const Status& status) {
  return status.code() == StatusCode::corrupt || status.code() == StatusCode::not_found ||
         status.code() == StatusCode::io_error;
}

Status on_rank(const Communicator& ranks, const RankFailure& failure) {
  return ranks.rank_count() == 1 ? failure.what : failure.what.with_context(fmt::format("rank {}", failure.rank));
}

/// corrupt, on all ranks, unless what they have checked belongs together. Collective.
Status check_origins(Communicator& ranks, const std::optional<SetOrigin>& origin) {
  std::array<uint64_t, 3> mine = {origin ? uint64_t{1} : uint64_t{0}, 0, 0};
  if (origin) std::memcpy(mine.data() + 1, origin->run.bytes.data(), origin->run.bytes.size());
  std::array<uint64_t, 3> least = mine, most = mine;
  VARVE_TRY(ranks.all_min(least));
  VARVE_TRY(ranks.all_max(most));
  if (least == most) return {};
  return Status::corrupt("what the nodes have of it was made by different runs");
}

/// Of an error after which a variable may have any content.
constexpr const char* kUndefined = "what is protected is now neither old nor new";

/// What is wrong with a candidate, as far as a glance tells. Collective.
Result<std::vector<RankFailure>> examine(Communicator& ranks, const RestartCandidate& candidate, RestartSide& side) {
  VARVE_ASSIGN(std::vector<RankFailure> failures, gather_failures(ranks, side.look(candidate)));
  if (!failures.empty()) return failures;
  const Status together = check_origins(ranks, side.origin());
  if (together.code() == StatusCode::corrupt) return std::vector<RankFailure>{{0, together}};
  VARVE_TRY(together);
  return gather_failures(ranks, side.check_together());
}

/// A restart on its way.
class Restart {
 public:
  Restart(Communicator& ranks, RestartSide& side) : ranks_(ranks), side_(side) {}

  /// Tries all candidates of a step, nearest first; mends what is damaged.
  Status try_step(std::span<const RestartCandidate> candidates) {
    std::vector<RestartCandidate> damaged;
    for (const RestartCandidate& candidate : candidates) {
      VARVE_ASSIGN(const bool taken, try_one(candidate, true));
      if (taken) break;
      if (!candidate.memory_run) damaged.push_back(candidate);
    }
    const bool taken_at_once = decision_.taken.has_value();
    for (const RestartCandidate& candidate : damaged) {
      const Result<bool> mended = side_.mend(candidate);
      if (!agree(ranks_, mended.status()).ok()) continue;
      std::array<uint64_t, 1> any = {*mended ? uint64_t{1} : uint64_t{0}};
      VARVE_TRY(ranks_.all_max(any));
      if (!decision_.taken) VARVE_TRY(try_one(candidate, false).status());
      const bool changed = any[0] != 0;
      // What was not taken was read by who mended it. Where there was nothing to mend, it may lack parts of other
      // nodes, and is as it was.
      const auto& unreadable = decision_.unreadable;
      const bool was_unreadable = std::find(unreadable.begin(), unreadable.end(), candidate) != unreadable.end();
      if (decision_.taken == candidate || (taken_at_once && (changed || was_unreadable)))
        note_whole(candidate, changed);
    }
    return {};
  }
  bool done() const { return decision_.taken.has_value(); }
  /// Whether some of what is protected has been written.
  bool touched() const { return touched_; }
  RestartDecision take_decision() && { return std::move(decision_); }

 private:
  /// Whether the candidate was taken. `first`: it was not tried before.
  Result<bool> try_one(const RestartCandidate& candidate, bool first) {
    VARVE_ASSIGN(std::vector<RankFailure> failures, examine(ranks_, candidate, side_));
    if (failures.empty()) {
      touched_ = true;
      VARVE_ASSIGN(failures, gather_failures(ranks_, side_.load()));
    }
    const auto refusal = std::find_if(failures.begin(), failures.end(),
                                      [](const RankFailure& failure) { return !may_fall_back(failure.what); });
    if (refusal != failures.end()) {
      return on_rank(ranks_, *refusal).with_context(fmt::format("cannot restart from {}", candidate.to_string()));
    }
    if (failures.empty()) {
      VARVE_TRY(
          agree(ranks_, side_.finish()).with_context(fmt::format("{} could not be loaded", candidate.to_string())));
      decision_.taken = candidate;
      return true;
    }
    if (first) pass_over(candidate, failures);
    return false;
  }

  /// One warning for a candidate, however many ranks cannot use it.
  void pass_over(const RestartCandidate& candidate, const std::vector<RankFailure>& failures) {
    decision_.passed_over.push_back(candidate);
    // What cannot be read today may be readable tomorrow.
    const bool unreadable = std::all_of(failures.begin(), failures.end(), [](const RankFailure& failure) {
      return failure.what.code() == StatusCode::io_error;
    });
    if (!candidate.memory_run) (unreadable ? decision_.unreadable : decision_.damaged).push_back(candidate);
    std::string context = fmt::format("{} was passed over", candidate.to_string());
    if (failures.size() > 1) {
      context += fmt::format(" ({} on {} ranks)", unreadable ? "unreadable" : "damaged", failures.size());
    }
    decision_.warnings.push_back(on_rank(ranks_, failures.front()).with_context(context));
  }

  /// It was passed over, and is whole now, since somebody has `mended` it, or as it was.
  void note_whole(const RestartCandidate& candidate, bool mended) {
    if (std::erase(decision_.unreadable, candidate) > 0) {
      decision_.warnings.push_back(
          Status::io_error(fmt::format("{} could not be read at first, and can be now", candidate.to_string())));
      return;
    }
    std::erase(decision_.damaged, candidate);
    if (mended) decision_.mended.push_back(candidate);
    decision_.warnings.push_back(Status::corrupt(fmt::format("{} was damaged, and is {}", candidate.to_string(),
                                                             mended ? "mended" : "whole when it is read again")));
  }

  Communicator& ranks_;
  RestartSide& side_;
  RestartDecision decision_;
  bool touched_ = false;
};

/// Tries all candidates, the newest first.
Status try_all(Restart& restart, const std::vector<RestartCandidate>& candidates) {
  for (size_t begin = 0; begin < candidates.size() && !restart.done();) {
    size_t end = begin;
    while (end < candidates.size() && candidates[begin].is_same_checkpoint(candidates[end])) ++end;
    VARVE_TRY(restart.try_step(std::span(candidates).subspan(begin, end - begin)));
    begin = end;
  }
  return {};
}

/// What is wrong if none of those that there are could be taken.
Status none_is_whole(const RestartDecision& decision) {
  const Status& newest = decision.warnings.front();
  if (!decision.unreadable.empty()) {
    return Status::io_error(
        fmt::format("no checkpoint could be loaded of those that were tried, and some could not be read; {}",
                    newest.message()),
        std::string(newest.subject()), Remedy::try_again_or_drop_sets);
  }
  return Status::corrupt(fmt::format("no checkpoint is whole of those that were tried; {}", newest.message()),
                         std::string(newest.subject()), Remedy::verify_or_drop_sets);
}
}  // namespace

bool RestartSelection::admits(const RestartCandidate& candidate) const {
  if (choice.exactly) return candidate.step == *choice.exactly;
  if (choice.at_most && candidate.step > *choice.at_most) return false;
  const auto before = [](const RestartCandidate& a, const RestartCandidate& b) {
    return a.number != b.number ? a.number < b.number : a.step < b.step;
  };
  if (older_than && !before(candidate, *older_than)) return false;
  return std::none_of(rejected.begin(), rejected.end(),
                      [&](const RestartCandidate& other) { return candidate.is_same_checkpoint(other); });
}

Result<RestartDecision> restart_from_newest(Communicator& ranks, const std::vector<RestartCandidate>& candidates,
                                            RestartSide& side) {
  Restart restart(ranks, side);
  Status outcome = try_all(restart, candidates);
  const bool is_undefined = restart.touched() && !restart.done();
  RestartDecision decision = std::move(restart).take_decision();
  if (outcome.ok() && !decision.taken && !decision.warnings.empty()) outcome = none_is_whole(decision);
  if (!outcome.ok()) return is_undefined ? outcome.with_context(kUndefined) : outcome;
  return decision;
}

// A rank that has no memory left says so to the others, who wait for what it finds; but not from the midst of what they
// do together.

Status RankRestart::look(const RestartCandidate& candidate) {
  wish_.divided_anew = false;
  unwanted_.clear();
  candidate_ = candidate;
  return look_again();
}

/// What of it is done with other ranks is not guarded: this one would not come to what they come to next.
Status RankRestart::look_again() {
  image_.reset();
  VARVE_ASSIGN(image_, levels_.at(candidate_.level).image(candidate_, wish_));
  return run_guarded([&] { return variables_.check_loadable(image_->table()); });
}

namespace {
/// What a rank tells the others of what it takes of a checkpoint that was made by others.
ByteVector encode_divided(const ReshapedImage* image) {
  ByteVector bytes;
  ByteWriter out(bytes);
  if (image == nullptr) return bytes;
  out.varint(image->divided().size());
  for (const auto& [name, elements] : image->divided()) {
    out.text(name);
    out.varint(elements.taken);
    out.varint(elements.saved);
    out.le64(elements.owners);
  }
  return bytes;
}

/// OK, unless the elements of a vector that is divided would come to several ranks, or to none.
Status check_divided(const std::vector<Told>& told) {
  std::map<std::string, DividedElements> all;
  for (const Told& of_rank : told) {
    ByteReader in(of_rank.bytes);
    VARVE_ASSIGN(uint64_t vectors, in.varint());
    for (; vectors > 0; --vectors) {
      VARVE_ASSIGN(const std::string_view name, in.text());
      DividedElements of_rank_too;
      VARVE_ASSIGN(of_rank_too.taken, in.varint());
      VARVE_ASSIGN(of_rank_too.saved, in.varint());
      VARVE_ASSIGN(of_rank_too.owners, in.le64());
      const auto [known, added] = all.try_emplace(std::string(name), of_rank_too);
      if (added) continue;
      known->second.taken += of_rank_too.taken;
      if (known->second.owners != of_rank_too.owners) {
        return Status::invalid_argument("not all ranks divide its elements alike", fmt::format("variable '{}'", name));
      }
    }
  }
  for (const auto& [name, elements] : all) {
    if (elements.taken == elements.saved) continue;
    return Status::invalid_argument(
        fmt::format("its {} elements would become {}: not all ranks protect it, or divide it alike", elements.saved,
                    elements.taken),
        fmt::format("variable '{}'", name));
  }
  return {};
}
}  // namespace

/// Where one rank has an array at another place than it had, what lies in the arrays' cells belongs to others, too.
Status RankRestart::look_divided_anew() {
  wish_.divided_anew = true;
  VARVE_ASSIGN(const auto failures, gather_failures(levels_.world().ranks, look_again()));
  return failures.empty() ? Status() : failures.front().what;
}

Status RankRestart::check_together() {
  Communicator& ranks = levels_.world().ranks;
  const ReshapedImage* reshaped = image_->as_reshaped();
  const bool divided_anew = reshaped != nullptr && reshaped->is_divided_anew();
  const bool any_owners = std::any_of(wish_.variables.begin(), wish_.variables.end(),
                                      [](const WantedVariable& wanted) { return wanted.owners != nullptr; });
  const bool divides = reshaped != nullptr && !reshaped->divided().empty();
  std::array<uint64_t, 5> any = {reshaped != nullptr, divided_anew, any_owners, reshaped == nullptr, divides};
  VARVE_TRY(ranks.all_max(any));
  if (any[0] == 0) return {};
  if (any[1] != 0 && any[2] != 0) {
    VARVE_TRY(look_divided_anew());
    reshaped = image_->as_reshaped();
  }
  // Each rank that puts together what it wants looks at some of what was saved.
  size_t ordinal = ranks.rank(), all = ranks.rank_count();
  if (any[2] != 0 || any[3] != 0 || any[4] != 0) {
    VARVE_ASSIGN(const std::vector<Told> told, gather_told(ranks, encode_divided(reshaped)));
    VARVE_TRY(check_divided(told));
    ordinal = static_cast<size_t>(
        std::count_if(told.begin(), told.end(), [&](const Told& of_rank) { return of_rank.rank < ranks.rank(); }));
    all = told.size();
  }
  const RankRange share = reshaped == nullptr ? RankRange() : reshaped->share(ordinal, all);
  Result<std::map<std::string, CellBox>> around = std::map<std::string, CellBox>();
  if (reshaped != nullptr) around = run_guarded([&] { return reshaped->boxes_around(share); });
  VARVE_ASSIGN(const RankBoxes boxes,
               agree_on_all_boxes(ranks, wish_.variables, around.ok() ? *around : std::map<std::string, CellBox>()));
  VARVE_TRY(around.status());
  if (reshaped == nullptr) return {};
  return run_guarded([&]() -> Status {
    VARVE_ASSIGN(unwanted_, reshaped->unwanted(boxes, share));
    return {};
  });
}

Status RankRestart::load() {
  if (!image_) return Status::internal("nothing was looked at before it was loaded");
  touched_ = true;
  const Result<ImageTarget*> target = run_guarded([this] { return variables_.begin_load(image_->table()); });
  // Others may count on this rank to read for them.
  VARVE_ASSIGN(const std::vector<RankFailure> failures, gather_failures(levels_.world().ranks, target.status()));
  if (!failures.empty()) return target.ok() ? failures.front().what : target.status();
  return run_guarded([&] { return image_->load(**target); });
}

Status RankRestart::finish() {
  return run_guarded([this] {
    const ReshapedImage* const reshaped = image_->as_reshaped();
    const std::set<std::string> ignored = reshaped == nullptr ? std::set<std::string>() : reshaped->ignored();
    // What is ignored the program has given up itself.
    leaves_out_ = !image_->left_out().empty() || !unwanted_.empty() || variables_.leaves_out(image_->table());
    levels_.world().warnings.add(image_->left_out());
    levels_.world().warnings.add(unwanted_);
    levels_.world().warnings.add(variables_.changes(image_->table(), ignored));
    return variables_.finish_load();
  });
}

Result<bool> RankRestart::mend(const RestartCandidate& candidate) {
  StoreLevel* const store = levels_.at(candidate.level).as_store();
  if (store == nullptr) return false;
  image_.reset();  // it has readers of what is going to be replaced
  return run_guarded([&] { return store->mend(candidate.step, levels_.stores()); });
}

namespace {
/// What any rank has. Collective.
Result<std::set<ArenaId>> gather_arenas(Communicator& ranks, const std::set<ArenaId>& mine) {
  ByteVector bytes;
  ByteWriter out(bytes);
  for (const ArenaId& arena : mine) out.bytes(arena.bytes);
  VARVE_ASSIGN(const auto by_rank, ranks.all_gather(bytes));
  std::set<ArenaId> all;
  for (const ByteVector& of_rank : by_rank) {
    ByteReader in(of_rank);
    while (!in.at_end()) {
      VARVE_ASSIGN(const ArenaId arena, ArenaId::read(in));
      all.insert(arena);
    }
  }
  return all;
}

void note_findings(Levels& levels, const RestartDecision& decision) {
  for (const RestartCandidate& set : decision.mended) levels.note_found(levels.at(set.level), set.step, Found::mended);
  for (const RestartCandidate& set : decision.damaged)
    levels.note_found(levels.at(set.level), set.step, Found::damaged);
  for (const RestartCandidate& set : decision.unreadable)
    levels.note_found(levels.at(set.level), set.step, Found::unreadable);
}
}  // namespace

namespace {
/// Those that may be taken, the newest first.
std::vector<RestartCandidate> select(const std::vector<RestartCandidate>& candidates,
                                     const RestartSelection& selection) {
  std::vector<RestartCandidate> selected;
  std::copy_if(candidates.begin(), candidates.end(), std::back_inserter(selected),
               [&](const RestartCandidate& candidate) { return selection.admits(candidate); });
  return selected;
}

std::set<uint64_t> steps_of(const std::vector<RestartCandidate>& candidates) {
  std::set<uint64_t> steps;
  for (const RestartCandidate& candidate : candidates) steps.insert(candidate.step);
  return steps;
}

/// Of one step alone that was tried it cannot be said that none is whole.
Status of_step_alone(const Status& failure, uint64_t step, const std::vector<RestartCandidate>& candidates,
                     const std::string& job) {
  std::set<uint64_t> others = steps_of(candidates);
  others.erase(step);
  const bool is_of_the_set = failure.code() == StatusCode::corrupt || failure.code() == StatusCode::io_error;
  if (others.empty() || !is_of_the_set) return failure;
  return {failure.code(), std::string(failure.message()), std::string(failure.subject()),
          fmt::format("restart from another step than that of {}; there are {}", SetName{job, step}.to_string(),
                      fmt::join(others, ", "))};
}

/// There is none of the step that was named.
Status no_such_step(uint64_t step, const std::vector<RestartCandidate>& candidates, const std::string& job) {
  const std::set<uint64_t> steps = steps_of(candidates);
  return Status::not_found(
      steps.empty() ? std::string("there is no checkpoint of this step, nor of any other")
                    : fmt::format("there is no checkpoint of this step; there are {}", fmt::join(steps, ", ")),
      SetName{job, step}.to_string());
}

/// The run makes anew what comes after the step that it goes on from, and leaves what was made of that step later. And
/// where a run has made a step anew and ended before the new set was everywhere, the old one is still at a level behind
/// the nearest store.
void leave_behind(Levels& levels, const std::vector<RestartCandidate>& candidates,
                  const std::optional<RestartCandidate>& taken) {
  const auto is_made_anew = [&](const RestartCandidate& set) {
    return std::any_of(candidates.begin(), candidates.end(), [&](const RestartCandidate& other) {
      const bool counts = other.memory_run ? other == taken : &levels.at(other.level) == &levels.nearest();
      return counts && other.step == set.step && other.number > set.number && !other.is_same_checkpoint(set);
    });
  };
  for (const RestartCandidate& candidate : candidates) {
    if (candidate.memory_run) continue;
    const bool is_taken = taken && candidate.is_same_checkpoint(*taken);
    const bool is_later =
        !taken || candidate.step > taken->step || (candidate.step == taken->step && candidate.number > taken->number);
    const bool is_left = !is_taken && (is_later || is_made_anew(candidate));
    // Of one that could not be read it is not known which set of its step it is: what was found of it before holds.
    if (!is_left && !candidate.is_known && candidate != taken) continue;
    // A run that has gone back, and then forward again, goes on from what it had left behind.
    levels.note_found(levels.at(candidate.level), candidate.step, is_left ? Found::left_behind : Found::on_course);
  }
}

/// Of the job's sets in the stores that this rank speaks for.
Status make_names_durable(const Levels& levels) {
  Status first;
  for (const StoreLevel* const level : levels.stores()) {
    const StoreAccess& access = level->access();
    if (access.opened() == nullptr || access.is_away() || !access.speaks()) continue;
    const Status durable = Catalog(*access.opened()).make_durable(levels.world().job);
    if (first.ok()) first = durable;
  }
  return first;
}

/// Which of what there is would be lost with the memory, as far as one look tells.
class MemoryAlone {
 public:
  /// All outlive it.
  MemoryAlone(const LevelWorld& world, const Levels& levels, const std::vector<RestartCandidate>& candidates)
      : world_(world), levels_(levels), candidates_(candidates) {}

  bool has(const RestartCandidate& one) const {
    return one.memory_run && !all_nodes_have(one) && !shared_store_has(one);
  }
  /// Of a store that all share, one look tells.
  bool shared_store_has(const RestartCandidate& one) const { return is_in_store(one, /*of_node=*/false); }
  /// A node's own store may be the only one that has it.
  bool all_nodes_have(const RestartCandidate& one) const {
    return world_.has_node_level && world_.sets.is_complete(one.step) && is_in_store(one, /*of_node=*/true);
  }
  /// Something that was made after `taken`, or anything if nothing is taken; what was rejected does not count.
  bool has_newer_than(const std::optional<RestartCandidate>& taken,
                      const std::vector<RestartCandidate>& rejected) const {
    const auto end = taken ? std::find(candidates_.begin(), candidates_.end(), *taken) : candidates_.end();
    return std::any_of(candidates_.begin(), end, [&](const RestartCandidate& newer) {
      return has(newer) && std::none_of(rejected.begin(), rejected.end(),
                                        [&](const RestartCandidate& other) { return newer.is_same_checkpoint(other); });
    });
  }

 private:
  bool is_in_store(const RestartCandidate& one, bool of_node) const {
    return std::any_of(candidates_.begin(), candidates_.end(), [&](const RestartCandidate& other) {
      return !other.memory_run && other.is_same_checkpoint(one) &&
             levels_.at(other.level).spec().is_of_node() == of_node;
    });
  }

  const LevelWorld& world_;
  const Levels& levels_;
  const std::vector<RestartCandidate>& candidates_;
};
/// Whether what all nodes had is still there on all, as their stores let older sets go each at its time. Collective.
Result<bool> every_node_has(LevelWorld& world, const Levels& levels, const RestartCandidate& one, bool had_it) {
  if (!world.has_node_level || !one.memory_run) return had_it;
  const Result<const Store*> own = levels.nearest().access().store();
  const Result<SetRecord> record = own.ok() ? Catalog(**own).read({world.job, one.step}) : own.status();
  const bool has_it = had_it && record.ok() && record->number == one.number;
  std::array<uint64_t, 1> lacking = {has_it ? uint64_t{0} : uint64_t{1}};
  VARVE_TRY(world.ranks.all_max(lacking));
  return lacking[0] == 0;
}
}  // namespace

namespace {
/// What the option redistribution says of variables that no rank protects goes for nothing: of a name that is mistyped,
/// most likely. Collective.
Status warn_of_unprotected(LevelWorld& world, const VariableTable& variables, const RankWish& wish) {
  std::map<std::string, bool> names = variables.overruled();
  std::array<uint64_t, 1> any = {0};
  for (const auto& [name, is_protected] : names) any[0] |= is_protected ? 0 : 1;
  VARVE_TRY(world.ranks.all_max(any));
  if (any[0] == 0) return {};
  ByteVector mine;
  ByteWriter out(mine);
  for (const auto& [name, is_protected] : names) {
    out.text(name);
    out.u8(is_protected ? 1 : 0);
  }
  VARVE_ASSIGN(const std::vector<ByteVector> told, world.ranks.all_gather(mine));
  for (const ByteVector& of_rank : told) {
    ByteReader in(of_rank);
    while (!in.at_end()) {
      VARVE_ASSIGN(const std::string_view name, in.text());
      VARVE_ASSIGN(const uint8_t is_protected, in.u8());
      names[std::string(name)] |= is_protected != 0;
    }
  }
  std::vector<std::string_view> there;
  for (const WantedVariable& wanted : wish.variables) there.push_back(wanted.variable.name);
  for (const auto& [name, is_protected] : names) {
    if (is_protected) continue;
    const std::string_view meant = nearest_word(name, there);
    world.warnings.add(Status::invalid_argument("the option redistribution names it, but no rank protects it",
                                                fmt::format("variable '{}'", name),
                                                meant.empty() ? Hint() : fmt::format("was '{}' meant?", meant)));
  }
  return {};
}
}  // namespace

namespace {
/// What nobody could load may be rebuilt, if the nodes have redundancy of the job that no level of this run makes use
/// of: to start anew would lose it. Else `failed`. Collective.
Status name_unused_redundancy(const Levels& levels, const Status& failed) {
  LevelWorld& world = levels.world();
  const bool is_used = std::any_of(levels.all().begin(), levels.all().end(),
                                   [](const auto& level) { return level->spec().is_redundancy(); });
  if (!world.has_node_level || is_used) return failed;
  const std::string path = levels.nearest().access().own_path();
  const auto has_some = [&] {
    const Result<std::vector<SetName>> sets = run_guarded([&] {
      return list_redundancy({&world.files, path, world.node}, world.job);
    });
    return sets.ok() && !sets->empty();
  };
  std::array<uint64_t, 1> found = {world.speaks_for_node() && has_some() ? uint64_t{1} : uint64_t{0}};
  VARVE_TRY(world.ranks.all_max(found));
  if (found[0] == 0) return failed;
  return Status::corrupt(
      fmt::format("{}; what is lost may be rebuilt: nodes have redundancy of the job, and this run has no such level",
                  failed.message()),
      std::string(failed.subject()),
      "name it behind local among the levels, as the run before did (partner, xor:N, rs:K+M)");
}
}  // namespace

Result<RunRestart> restart_from_levels(LevelWorld& world, Levels& levels, VariableTable& variables,
                                       const RestartSelection& selection) {
  RunRestart restart;
  RankWish wish{world.ranks.rank(), world.ranks.rank_count(), {}, variables.may_change(), {}};
  VARVE_TRY(agree(world.ranks, run_guarded([&] {
                    wish.variables = variables.wanted();
                    return variables.check_overruled();
                  })));
  VARVE_TRY(complete_left_parts(levels));
  VARVE_ASSIGN(const std::vector<RestartCandidate> candidates, find_candidates(levels));
  const std::vector<RestartCandidate> selected = select(candidates, selection);
  VARVE_TRY(warn_of_unprotected(world, variables, wish));
  VARVE_ASSIGN(wish.boxes, agree_on_boxes(world.ranks, wish.variables));
  VARVE_ASSIGN(wish.all_alike, want_alike(world.ranks, wish.variables));
  RankRestart side(levels, variables, std::move(wish));
  Result<RestartDecision> decision = restart_from_newest(world.ranks, selected, side);
  levels.drop_caches();
  const bool found_none = decision.ok() ? !decision->taken : decision.status().code() == StatusCode::corrupt;
  if (found_none) VARVE_TRY(check_all_were_reached(levels));
  if (found_none && selected.empty() && selection.choice.exactly)
    return no_such_step(*selection.choice.exactly, candidates, world.job);
  restart.begins = candidates.empty();
  // Where something was loaded it was whole somewhere, and the program's own beginning is gone.
  if (decision.status().code() == StatusCode::corrupt && selection.is_open() && !side.touched()) {
    VARVE_ASSIGN(restart.begins_anew, never_were_whole(levels, candidates));
    if (restart.begins_anew) {
      world.warnings.add(
          Status::not_found("the first checkpoint never was on all nodes: the run begins anew", world.job));
      return restart;
    }
  }
  if (decision.status().code() == StatusCode::corrupt) {
    const Status failed = name_unused_redundancy(levels, decision.status());
    decision = failed;
  }
  if (!decision.ok() && selection.choice.exactly)
    return of_step_alone(decision.status(), *selection.choice.exactly, candidates, world.job);
  VARVE_TRY(decision.status());
  world.warnings.add(decision->warnings);
  note_findings(levels, *decision);
  restart.taken = decision->taken;
  restart.passed_over = decision->passed_over.size();
  leave_behind(levels, candidates, restart.taken);
  const MemoryAlone memory(world, levels, candidates);
  restart.newer_in_memory_alone = memory.has_newer_than(restart.taken, selection.rejected);
  if (restart.taken) {
    const RestartCandidate& taken = *restart.taken;
    VARVE_ASSIGN(const bool all_nodes_have_it, every_node_has(world, levels, taken, memory.all_nodes_have(taken)));
    restart.in_memory_alone = taken.memory_run && !all_nodes_have_it && !memory.shared_store_has(taken);
    // Who has committed what the stores have may have been killed before that had its name for good.
    if (taken.memory_run && !restart.in_memory_alone && !agree(world.ranks, make_names_durable(levels)).ok())
      restart.newer_in_memory_alone = true;
    const bool keeps_number = restart.in_memory_alone && taken == candidates.front();
    restart.next_number = candidates.front().number + (keeps_number ? 0 : 1);
    if (restart.in_memory_alone) {
      std::array<uint64_t, 1> any = {side.leaves_out() ? uint64_t{1} : uint64_t{0}};
      VARVE_TRY(world.ranks.all_max(any));
      restart.leaves_out = any[0] != 0;
    }
    // What lies on other nodes than there are now is not brought on in parts.
    restart.on_own_nodes = side.image_is_of_own_node();
    if (all_nodes_have_it || (&levels.at(taken.level) == &levels.nearest() && restart.on_own_nodes)) {
      bring_behind(levels, taken, candidates);
    }
  } else if (!candidates.empty()) {
    restart.next_number = candidates.front().number + 1;
  }
  // A newer step that was asked for alone before may have met with some, too.
  if (!decision->unreadable.empty() || selection.choice.exactly) {
    VARVE_ASSIGN(restart.unreadable_arenas, gather_arenas(world.ranks, levels.nearest().unreadable_arenas()));
  }
  return restart;
}

}  // namespace varve
