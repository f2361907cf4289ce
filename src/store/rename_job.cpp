#include "store/rename_job.h"

#include <utility>
#include <vector>

#include "store/catalog.h"
#include "store/commit.h"
#include "store/job_lease.h"
#include "store/remarks.h"

namespace varve {

namespace {
/// A set under its old name, as it was copied.
struct CopiedSet {
  SetRecord record;
  bool pinned = false;
  bool is_held = false;  ///< the new name is pinned until the old one is gone
};

Status replaced_meanwhile(const SetName& name) {
  return Status::busy("the set was dropped or replaced while its job was renamed", name.to_string(), "do it again");
}

/// Commits the record once more, under the other name, if the set is there as it was when prunes have seen that.
Status commit_as(const Store& store, const SetRecord& record, const SetName& name, ProgressSink& progress) {
  SetRecord renamed = record;
  renamed.name = name;
  const auto committed = start_over_if_lost(progress, [&]() -> Result<bool> {
    VARVE_ASSIGN(const std::unique_ptr<WriterLease> lease, WriterLease::acquire(store));
    VARVE_TRY(lease->prepare(renamed));
    const Result<SetRecord> now = Catalog(store).read(record.name);
    if (!now.ok() || !same_trees(*now, record)) return replaced_meanwhile(record.name);
    VARVE_TRY(lease->commit_prepared(name, IfExists::refuse));
    return true;
  });
  if (committed.status().code() != StatusCode::already_exists) return committed.status();
  VARVE_ASSIGN(const SetRecord there, Catalog(store).read(name));
  return same_trees(there, record) ? Catalog(store).make_durable(name.job) : committed.status();
}

/// What has a tag is pinned under the new name meanwhile, for a prune that keeps sets for their tags may have seen the
/// name without it.
Status copy_remarks(const Store& store, CopiedSet& set, const SetName& to, ProgressSink& progress) {
  const SetName& from = set.record.name;
  const Remarks remarks(store);
  VARVE_ASSIGN(auto all, remarks.all());
  const SetRemarks& said = all[from];
  set.pinned = said.pinned;
  set.is_held = !said.pinned && !said.tags.empty() && !all[to].pinned;
  // Whose pin that is nobody knows: a set that somebody has pinned must not go.
  if (!said.pinned && all[to].pinned) {
    progress.warning(Status::already_exists("the set is pinned under its new name already, and stays so",
                                            to.to_string(),
                                            "unpin it if nobody has pinned it: a rename that was stopped may have"));
  }
  if (said.pinned || set.is_held) VARVE_TRY(remarks.pin(to));
  for (const std::string& tag : said.tags) VARVE_TRY(remarks.add_tag(to, tag));
  if (said.has_note) {
    VARVE_ASSIGN(const std::string note, remarks.note(from));
    VARVE_TRY(remarks.write_note(to, note));
  }
  return {};
}

Result<std::unique_ptr<JobLease>> hold_job(const Store& store, const std::string& job) {
  VARVE_ASSIGN(const UniqueId id, UniqueId::random());
  Result<std::unique_ptr<JobLease>> lease = JobLease::acquire(store, {.job = job, .run = id}, steady_clock());
  if (lease.status().remedy() == Remedy::take_job_over)
    return Status::busy(std::string(lease.status().message()), job, "wait for its end");
  return lease;
}

/// The sets of `from`, none of which is in the way of another of `to`.
Result<std::vector<CopiedSet>> sets_to_rename(const Store& store, const std::string& from, const std::string& to) {
  const Catalog catalog(store);
  VARVE_ASSIGN(const std::vector<uint64_t> steps, catalog.steps(from));
  if (steps.empty()) return Status::not_found("the store has no set of this job", from, Remedy::list_sets);
  std::vector<CopiedSet> sets;
  for (const uint64_t step : steps) {
    VARVE_ASSIGN(SetRecord record, catalog.read({from, step}));
    const Result<SetRecord> there = catalog.read({to, step});
    if (there.ok() && !same_trees(*there, record))
      return Status::already_exists("the job has another set of this step", SetName{to, step}.to_string());
    if (!there.ok() && there.status().code() != StatusCode::not_found) return there.status();
    sets.push_back({std::move(record)});
  }
  return sets;
}

/// What is left under the old name, if it is still what was copied.
Status remove_old(const Store& store, const CopiedSet& set) {
  const Catalog catalog(store);
  const Result<SetRecord> now = catalog.read(set.record.name);
  if (now.status().code() == StatusCode::not_found) return {};
  VARVE_TRY(now.status());
  if (!same_trees(*now, set.record)) return replaced_meanwhile(set.record.name);
  if (set.pinned) VARVE_TRY(Remarks(store).unpin(set.record.name).status());
  VARVE_ASSIGN(const Catalog::Removal removal,
               catalog.remove_if(set.record.name, [&](const SetRecord& there, const SetRemarks*) {
                 return same_trees(there, set.record);
               }));
  if (removal == Catalog::Removal::is_pinned)
    return Status::busy("the set was pinned while its job was renamed", set.record.name.to_string(), "do it again");
  return removal == Catalog::Removal::is_another ? replaced_meanwhile(set.record.name) : Status();
}
}  // namespace

Status rename_job(const Store& store, const std::string& from, const std::string& to, ProgressSink& progress) {
  VARVE_TRY(check_job_name(from));
  VARVE_TRY(check_job_name(to));
  if (from == to) return Status::invalid_argument("the job is called so already", from);
  VARVE_ASSIGN(const std::unique_ptr<JobLease> old_lease, hold_job(store, from));
  VARVE_ASSIGN(const std::unique_ptr<JobLease> new_lease, hold_job(store, to));
  VARVE_TRY(remove_used_parts(store).status());
  VARVE_ASSIGN(const std::vector<PartName> parts, list_parts(store));
  for (const PartName& part : parts) {
    if (part.set.job == from)
      return Status::busy("a part of a set waits for the others", part.to_string(),
                          "start the program again, which completes the set or gives it up");
  }
  VARVE_ASSIGN(std::vector<CopiedSet> sets, sets_to_rename(store, from, to));
  const auto let_go = [&](CopiedSet& set) -> Status {
    if (!std::exchange(set.is_held, false)) return {};
    return Remarks(store).unpin({to, set.record.name.step}).status();
  };
  bool both_names = false;
  const auto rename_all = [&]() -> Status {
    for (CopiedSet& set : sets) {
      if (progress.cancelled()) return Status::cancelled();
      const SetName name{to, set.record.name.step};
      VARVE_TRY(commit_as(store, set.record, name, progress));
      VARVE_TRY(copy_remarks(store, set, name, progress));
      both_names = true;
    }
    for (CopiedSet& set : sets) {
      VARVE_TRY(old_lease->check());
      VARVE_TRY(new_lease->check());
      VARVE_TRY(remove_old(store, set));
      VARVE_TRY(let_go(set));
    }
    return {};
  };
  const Status renamed = rename_all();
  // Where that failed, the old names are there still, with what they have.
  for (CopiedSet& set : sets) let_go(set).ignore("it stays pinned, as it does when this is killed");
  if (renamed.ok() || !both_names) return renamed;
  return renamed.with_context("sets have both names now, and nothing is lost: rename it again, joining the new job");
}

}  // namespace varve
