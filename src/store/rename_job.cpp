#include "store/rename_job.h"

#include <algorithm>
#include <vector>

#include "store/catalog.h"
#include "store/commit.h"
#include "store/job_lease.h"
#include "store/remarks.h"

namespace varve {

namespace {
/// Commits the record once more, under the other name.
Status commit_as(const Store& store, const SetRecord& record, ProgressSink& progress) {
  const auto committed = start_over_if_lost(progress, [&]() -> Result<bool> {
    VARVE_ASSIGN(const std::unique_ptr<WriterLease> lease, WriterLease::acquire(store));
    VARVE_TRY(lease->commit(record));
    return true;
  });
  if (committed.status().code() != StatusCode::already_exists) return committed.status();
  VARVE_ASSIGN(const SetRecord there, Catalog(store).read(record.name));
  const bool is_same = std::equal(there.groups.begin(), there.groups.end(), record.groups.begin(), record.groups.end(),
                                  [](const GroupRecord& a, const GroupRecord& b) { return a.root == b.root; });
  return is_same ? Catalog(store).make_durable(record.name.job) : committed.status();
}

Status copy_remarks(const Store& store, const SetName& from, const SetName& to) {
  const Remarks remarks(store);
  VARVE_ASSIGN(const SetRemarks said, remarks.of(from));
  if (said.pinned) VARVE_TRY(remarks.pin(to));
  for (const std::string& tag : said.tags) VARVE_TRY(remarks.add_tag(to, tag));
  if (!said.has_note) return {};
  VARVE_ASSIGN(const std::string note, remarks.note(from));
  return remarks.write_note(to, note);
}

Result<std::unique_ptr<JobLease>> hold_job(const Store& store, const std::string& job) {
  VARVE_ASSIGN(const UniqueId id, UniqueId::random());
  return JobLease::acquire(store, {.job = job, .run = id}, steady_clock());
}
}  // namespace

Status rename_job(const Store& store, const std::string& from, const std::string& to, ProgressSink& progress) {
  VARVE_TRY(check_job_name(from));
  VARVE_TRY(check_job_name(to));
  if (from == to) return Status::invalid_argument("the job is called so already", from);
  const Catalog catalog(store);
  VARVE_ASSIGN(const std::unique_ptr<JobLease> old_lease, hold_job(store, from));
  VARVE_ASSIGN(const std::unique_ptr<JobLease> new_lease, hold_job(store, to));
  VARVE_TRY(remove_used_parts(store).status());
  VARVE_ASSIGN(const std::vector<PartName> parts, list_parts(store));
  for (const PartName& part : parts) {
    if (part.set.job == from)
      return Status::busy("a part of a set waits for the others", part.to_string(),
                          "start the program again, which completes the set or gives it up");
  }
  VARVE_ASSIGN(const std::vector<uint64_t> steps, catalog.steps(from));
  if (steps.empty()) return Status::not_found("the store has no set of this job", from, Remedy::list_sets);
  std::vector<SetName> old_names;
  for (const uint64_t step : steps) {
    if (progress.cancelled()) return Status::cancelled();
    old_names.push_back({from, step});
    VARVE_ASSIGN(SetRecord record, catalog.read(old_names.back()));
    record.name.job = to;
    VARVE_TRY(commit_as(store, record, progress));
    VARVE_TRY(copy_remarks(store, old_names.back(), record.name));
  }
  for (const SetName& name : old_names) VARVE_TRY(Remarks(store).unpin(name).status());
  std::vector<SetName> removed;
  return catalog.remove_all(old_names, removed);
}

}  // namespace varve
