#include "mount/job_folder.h"

#include <fcntl.h>

#include <algorithm>

#include "core/step_text.h"
#include "store/commit.h"

namespace varve {

namespace {
// Numbers in a job's folder, beside the folder itself.
constexpr uint32_t kLatestLink = 2;
constexpr uint32_t kFirstAlias = 16;
constexpr const char* kLatest = "latest";
constexpr size_t kMountNameBytesMax = 100;
constexpr double kFirstPauseSeconds = 5;
constexpr double kPauseSecondsMax = 600;

/// Of a name that can be none of a job or a step.
Errno bad_name(const std::string& name) { return {name.size() > kMountNameBytesMax ? ENAMETOOLONG : EINVAL}; }

/// The same of a step alone. What the error cannot say, the log does.
Errno no_set_name(const MountLog& log, const std::string& job, const std::string& name) {
  log("no set can be called " + job + "/" + name +
      ": the name has a step's number, or is a time, as 40, out40 and 0.25");
  return bad_name(name);
}

/// Of a name that a committed set may have.
std::optional<uint64_t> canonical_step(const std::string& name) {
  const std::optional<StepName> parsed = parse_step_name(name);
  return parsed && parsed->canonical ? std::optional(parsed->step) : std::nullopt;
}

bool is_empty(const OpenSet& set) {
  const MountResult<std::vector<ListedName>> names = set.folder()->list(MountedFolder::kTop);
  return names.ok() && names->empty();
}

/// Adds the number of what has this path in a set, and of all that is below it.
void add_numbers(OpenFolder& folder, uint32_t id, const std::string& path, SetNumbers::Known& known) {
  known.emplace_back(path, id);
  const MountResult<std::vector<ListedName>> below = folder.list(id);
  if (!below.ok()) return;
  for (const ListedName& name : *below)
    add_numbers(folder, static_cast<uint32_t>(name.inode), join_path(path, name.name), known);
}
}  // namespace

bool JobFolder::is_spooled() const {
  const MutexLock lock(mutex_);
  return spooled_;
}

void JobFolder::note_spooled() {
  const MutexLock lock(mutex_);
  spooled_ = true;
}

std::shared_ptr<OpenSet> JobFolder::open_set(const std::string& name) const {
  const MutexLock lock(mutex_);
  const auto found = open_.find(name);
  return found == open_.end() ? nullptr : found->second.set;
}

std::optional<StepName> JobFolder::step_named(const std::string& name) const {
  const std::optional<StepName> parsed = parse_step_name(name);
  const std::optional<StepName> as_time = parse_step_name(name, true);
  if (!parsed || !as_time || parsed->step == as_time->step) return parsed;
  const Result<bool> has_times = context_.catalog.has_times(name_);
  if (has_times.ok() && *has_times) return as_time;
  const MutexLock lock(mutex_);
  const bool open_times =
      std::any_of(open_.begin(), open_.end(), [](const auto& open) { return is_name_of_time(open.first); });
  return open_times ? as_time : parsed;
}

void JobFolder::note_alias(const std::string& name, uint64_t step) {
  aliases_[name] = step;
  alias_links_[kFirstAlias + static_cast<uint32_t>(alias_links_.size())] = step;
}

MountResult<std::shared_ptr<StoredSet>> JobFolder::stored_set(uint64_t step) {
  const SetName name{name_, step};
  Result<SetRecord> record = context_.catalog.read(name);
  if (!record.ok()) {
    if (record.status().code() != StatusCode::not_found)
      context_.log("cannot read " + name.to_string() + ": " + record.status().to_string());
    return errno_of(record.status());
  }
  const MutexLock lock(mutex_);
  std::shared_ptr<StoredSet>& known = stored_[step];
  const auto same_root = [](const GroupRecord& a, const GroupRecord& b) {
    return a.root == b.root && a.hint == b.hint;
  };
  if (known && std::equal(known->record().groups.begin(), known->record().groups.end(), record->groups.begin(),
                          record->groups.end(), same_root))
    return known;
  // New to us, or another set of that name: what is known of the old one keeps its numbers.
  const uint32_t number = context_.realms.take_number();
  known = std::make_shared<StoredSet>(number, std::move(*record), context_.stored, context_.options.owner,
                                      context_.options.may_remove && !context_.is_read_only());
  context_.realms.set(number, {.folder = known, .job = shared_from_this(), .open = {}});
  return known;
}

// Looking

MountResult<NodeView> JobFolder::look(uint32_t id) {
  if (id == kTop) return context_.folder_view(inode_of(realm_, kTop));
  MOUNT_ASSIGN(const std::string target, read_link(id));
  return context_.link_view(inode_of(realm_, id), canonical_step(target).value_or(0));
}

MountResult<std::string> JobFolder::read_link(uint32_t id) {
  if (id == kLatestLink) {
    const Result<std::vector<uint64_t>> steps = context_.catalog.steps(name_);
    if (!steps.ok()) return errno_of(steps.status());
    if (steps->empty()) return Errno{ENOENT};
    return step_text(steps->back());
  }
  const MutexLock lock(mutex_);
  const auto alias = alias_links_.find(id);
  if (alias == alias_links_.end()) return Errno{EINVAL};
  return step_text(alias->second);
}

MountResult<NodeView> JobFolder::find(uint32_t, const std::string& name) {
  if (const std::shared_ptr<OpenSet> set = open_set(name)) return set->folder()->look(kTop);
  if (const std::optional<uint64_t> step = canonical_step(name)) {
    const MountResult<std::shared_ptr<StoredSet>> set = stored_set(*step);
    if (set.ok()) return (*set)->look(kTop);
    // A time is asked for as its program calls it: "1" is a link to "1.0".
    if (set.error().number != ENOENT) return set.error();
    const Result<std::optional<SetName>> found = context_.catalog.find({name_, *step});
    if (!found.ok()) return errno_of(found.status());
    const std::optional<SetName>& meant = *found;
    if (!meant || meant->step == *step) return set.error();
    const MutexLock lock(mutex_);
    if (!aliases_.contains(name)) note_alias(name, meant->step);
  }
  uint32_t id = 0;
  uint64_t step = 0;
  {
    const MutexLock lock(mutex_);
    if (name == kLatest && !latest_hidden_) id = kLatestLink;
    if (const auto alias = aliases_.find(name); alias != aliases_.end()) {
      step = alias->second;
      for (const auto& [number, target] : alias_links_) {
        if (target == step) id = number;
      }
    }
  }
  if (id == 0) return Errno{ENOENT};
  if (id == kLatestLink) return look(id);
  // An alias goes with its set.
  const Result<FileStatus> there = context_.store.backend().status(context_.catalog.record_path({name_, step}));
  if (!there.ok()) return errno_of(there.status());
  return context_.link_view(inode_of(realm_, id), step);
}

MountResult<std::vector<ListedName>> JobFolder::list(uint32_t) {
  const Result<std::vector<uint64_t>> steps = context_.catalog.steps(name_);
  if (!steps.ok()) return errno_of(steps.status());
  std::vector<ListedName> names;
  const MutexLock lock(mutex_);
  for (const uint64_t step : *steps) {
    if (open_.count(step_text(step)) != 0) continue;
    // Who wants its number looks it up: that takes reading the set's record.
    const auto known = stored_.find(step);
    const uint64_t inode = known == stored_.end() ? 0 : inode_of(known->second->realm(), kTop);
    names.push_back({step_text(step), inode, S_IFDIR});
  }
  for (const auto& [name, open] : open_) names.push_back({name, inode_of(open.set->realm(), kTop), S_IFDIR});
  if (!steps->empty() && !latest_hidden_) names.push_back({kLatest, inode_of(realm_, kLatestLink), S_IFLNK});
  return names;
}

// Making and removing sets

Result<std::shared_ptr<OpenSet>> JobFolder::adopt(SpooledSet spooled) {
  const uint32_t number = context_.realms.take_number();
  const std::string name = spooled.record.name;
  VARVE_ASSIGN(std::shared_ptr<OpenSet> set,
               OpenSet::load(number, std::move(spooled), *context_.spool, context_.clock, context_.options.open_sets));
  const MutexLock lock(mutex_);
  context_.realms.set(number, {.folder = set->folder(), .job = shared_from_this(), .open = set});
  open_[name] = {set};
  return set;
}

MountResult<NodeView> JobFolder::make_folder(uint32_t, const std::string& name, uint32_t) {
  const std::optional<StepName> parsed = step_named(name);
  if (!parsed) return no_set_name(context_.log, name_, name);
  if (open_set(name)) return Errno{EEXIST};
  if (!parsed->temporary && context_.store.backend().status(context_.catalog.record_path({name_, parsed->step})).ok())
    return Errno{EEXIST};
  Result<SpooledSet> spooled = context_.spool->make_set(name_, name);
  if (!spooled.ok()) {
    context_.log("cannot make " + name_ + "/" + name + ": " + spooled.status().to_string());
    return errno_of(spooled.status());
  }
  const Result<std::shared_ptr<OpenSet>> set = adopt(std::move(*spooled));
  if (!set.ok()) return errno_of(set.status());
  {
    const MutexLock lock(mutex_);
    spooled_ = true;
    aliases_.erase(name);
  }
  return (*set)->folder()->look(kTop);
}

Errno JobFolder::remove(uint32_t, const std::string& name, int flags) {
  const std::shared_ptr<OpenSet> set = open_set(name);
  const std::optional<uint64_t> step = canonical_step(name);
  if (flags == AT_REMOVEDIR) {
    if (set) return discard(*set, name);
    if (step) return drop(*step);
    return {name == kLatest ? ENOTDIR : ENOENT};
  }
  if (name != kLatest) return {set || step ? EISDIR : EPERM};
  // `rm -r JOB` wants it gone before the folder. It is back with the next set.
  if (!context_.options.may_remove) return {EPERM};
  const MutexLock lock(mutex_);
  latest_hidden_ = true;
  return {};
}

Errno JobFolder::discard(OpenSet& set, const std::string& name) {
  if (!is_empty(set)) return {ENOTEMPTY};
  MOUNT_TRY(set.begin_sealing());  // nothing can come into it any more
  if (!is_empty(set)) {
    set.give_up_sealing({});
    return {ENOTEMPTY};
  }
  if (const Status gone = context_.spool->discard(set.spooled()); !gone.ok()) {
    set.give_up_sealing(gone);
    return errno_of(gone);
  }
  set.finish_sealing();
  {
    const MutexLock lock(mutex_);
    open_.erase(name);
  }
  context_.keeper.empty_trash_soon();
  return {};
}

Errno JobFolder::drop(uint64_t step) {
  if (!context_.options.may_remove) return {EPERM};
  MOUNT_ASSIGN(const std::shared_ptr<StoredSet> set, stored_set(step));
  MOUNT_ASSIGN(const bool cleared, set->is_cleared());
  if (!cleared) return {ENOTEMPTY};
  // The job's folder stays until it is removed, too.
  if (const Status kept = context_.spool->make_job(name_); !kept.ok()) return errno_of(kept);
  const SetName& name = set->record().name;
  // As Catalog::remove(), but for what a run has put in its place meanwhile: of that nobody has removed any file.
  Status dropped = remove_used_parts(context_.store, &name).status();
  if (dropped.ok()) {
    const Result<Catalog::Removal> removal = context_.catalog.remove_if(
        name, [&](const SetRecord& now, const SetRemarks*) { return same_trees(now, set->record()); });
    dropped = removal.status();
    if (removal.ok() && *removal == Catalog::Removal::is_another) return {ENOTEMPTY};
    if (removal.ok() && *removal == Catalog::Removal::is_pinned)
      dropped = Status(StatusCode::permission_denied, "the set is pinned", name.to_string(), "unpin it first");
    if (removal.ok() && *removal == Catalog::Removal::was_gone)
      dropped = Status::not_found("no such set", name.to_string());
  }
  if (!dropped.ok()) {
    context_.log("cannot drop " + name.to_string() + ": " + dropped.to_string());
    return errno_of(dropped);
  }
  context_.log("dropped " + name.to_string());
  const MutexLock lock(mutex_);
  spooled_ = true;
  stored_.erase(step);
  return {};
}

Errno JobFolder::remove_job() {
  const Result<std::vector<uint64_t>> steps = context_.catalog.steps(name_);
  if (!steps.ok()) return errno_of(steps.status());
  {
    const MutexLock lock(mutex_);
    if (!steps->empty() || !open_.empty()) return {ENOTEMPTY};
    spooled_ = false;
  }
  if (const Status removed = context_.spool->remove_job(name_); !removed.ok()) {
    note_spooled();
    return {removed.code() == StatusCode::already_exists ? ENOTEMPTY : errno_of(removed).number};
  }
  // A folder without sets, which the last one has left in the store.
  context_.store.backend().remove_folder(context_.catalog.job_path(name_)).ignore("not there, or taken by a new save");
  return {};
}

// Sealing

Errno JobFolder::rename(uint32_t, const std::string& name, uint32_t, const std::string& new_name, unsigned flags) {
  if ((flags & ~static_cast<unsigned>(RENAME_NOREPLACE)) != 0) return {EINVAL};
  const std::shared_ptr<OpenSet> set = open_set(name);
  if (!set) return {canonical_step(name) || name == kLatest ? EROFS : ENOENT};
  const std::optional<StepName> wanted = step_named(new_name);
  if (!wanted) return no_set_name(context_.log, name_, new_name);
  if (name == new_name) return {};
  if (open_set(new_name)) return {EEXIST};
  const bool taken = context_.store.backend().status(context_.catalog.record_path({name_, wanted->step})).ok();
  if (taken && !wanted->temporary) return {EEXIST};
  if (!wanted->temporary) return errno_of(seal(set, new_name, 0));
  MOUNT_TRY(set->set_name(new_name));
  const MutexLock lock(mutex_);
  open_[new_name] = open_[name];
  open_.erase(name);
  return {};
}

Status JobFolder::seal(const std::shared_ptr<OpenSet>& set, const std::string& alias, double quiet_seconds) {
  const std::optional<StepName> parsed = step_named(alias);
  if (!parsed) return Status::invalid_argument("this name tells no step", alias);
  const SetName name{name_, parsed->step};
  const Errno begun = set->begin_sealing(quiet_seconds);
  if (begun.number == EIO) {
    const Status lost = Status::io_error(
        "a file of the set has lost what was written to it, as the disk failed or was full",
        join_path(name.to_string(), set->folder()->lost_file().value_or("")), "remove it, and write it again");
    context_.log("cannot seal " + name.to_string() + ": " + lost.to_string());
    return lost;
  }
  if (!begun.ok()) {
    return Status::busy("files of the set are open for writing, or it is being sealed already", name.to_string(),
                        "close them first");
  }
  const Result<SetRecord> record =
      context_.commit->commit(set->spooled(), name, [&set] { return set->folder()->check_written_back(); });
  if (!record.ok()) {
    context_.log("cannot seal " + name.to_string() + ": " + record.status().to_string());
    set->give_up_sealing(record.status());
    return record.status();
  }
  show_sealed(*set, *record, alias);
  context_.log("sealed " + name.to_string());
  if (context_.options.note_sealed) context_.options.note_sealed(name);
  return {};
}

void JobFolder::show_sealed(OpenSet& set, const SetRecord& record, const std::string& alias) {
  const SpooledSet spooled = set.spooled();
  const auto show_as = [&](uint32_t number) {
    return std::make_shared<StoredSet>(number, record, context_.stored, context_.options.owner,
                                       context_.options.may_remove);
  };
  std::shared_ptr<StoredSet> stored = show_as(set.realm());
  SetNumbers::Known numbers;
  add_numbers(*set.folder(), kTop, "", numbers);
  if (const Status adopted = stored->adopt(numbers); !adopted.ok()) {
    // Whoever has it open finds it anew under other numbers; nobody gets one file for another.
    context_.log("cannot look into " + record.name.to_string() + " after sealing it: " + adopted.to_string());
    stored = show_as(context_.realms.take_number());
  }
  {
    const MutexLock lock(mutex_);
    context_.realms.set(stored->realm(), {.folder = stored, .job = shared_from_this(), .open = {}});
    stored_[record.name.step] = stored;
    open_.erase(spooled.record.name);
    latest_hidden_ = false;
    if (!canonical_step(alias)) {
      note_alias(alias, record.name.step);
    }
  }
  set.finish_sealing();
  if (const Status gone = context_.spool->discard(spooled); !gone.ok())
    context_.log("cannot clear the spool of " + record.name.to_string() + ": " + gone.to_string());
  context_.keeper.empty_trash_soon();
}

void JobFolder::seal_quiet_sets() {
  std::vector<std::pair<std::string, std::shared_ptr<OpenSet>>> candidates;
  {
    const MutexLock lock(mutex_);
    for (const auto& [name, open] : open_) {
      if (!parse_step_name(name)->temporary && open.retry_at <= context_.clock.seconds())
        candidates.emplace_back(name, open.set);
    }
  }
  const double quiet_seconds = context_.options.seal_seconds;
  for (const auto& [name, set] : candidates) {
    const OpenSet::Summary now = set->summary();
    if (now.unfinished || now.sealing || now.written.writers > 0 || now.written.files == 0) continue;
    if (now.written.quiet_seconds < quiet_seconds) continue;
    const Status sealed = seal(set, name, quiet_seconds);
    if (sealed.ok()) continue;
    const MutexLock lock(mutex_);
    const auto still = open_.find(name);
    if (still == open_.end()) continue;
    Writing& open = still->second;
    // Who is busy tells so by coming; a real failure may last.
    const bool busy = sealed.code() == StatusCode::busy;
    open.retry_pause =
        busy ? kFirstPauseSeconds : std::clamp(open.retry_pause * 2, kFirstPauseSeconds, kPauseSecondsMax);
    open.retry_at = context_.clock.seconds() + open.retry_pause;
  }
}

// The root

std::shared_ptr<JobFolder> RootFolder::job_named(const std::string& name) {
  const MutexLock lock(mutex_);
  std::shared_ptr<JobFolder>& job = jobs_[name];
  if (!job) {
    const uint32_t number = context_.realms.take_number();
    job = std::make_shared<JobFolder>(context_, number, name);
    context_.realms.set(number, {.folder = job, .job = {}, .open = {}});
  }
  return job;
}

MountResult<std::shared_ptr<JobFolder>> RootFolder::find_job(const std::string& name) {
  if (!check_job_name(name).ok()) return Errno{ENOENT};
  {
    const MutexLock lock(mutex_);
    const auto known = jobs_.find(name);
    if (known != jobs_.end() && known->second->is_spooled()) return known->second;
  }
  const Result<FileStatus> status = context_.store.backend().status(context_.catalog.job_path(name));
  if (!status.ok()) return errno_of(status.status());
  if (!status->is_directory) return Errno{ENOENT};
  return job_named(name);
}

std::vector<std::shared_ptr<JobFolder>> RootFolder::known_jobs() const {
  std::vector<std::shared_ptr<JobFolder>> jobs;
  const MutexLock lock(mutex_);
  for (const auto& [name, job] : jobs_) jobs.push_back(job);
  return jobs;
}

Status RootFolder::take_up_spool() {
  VARVE_ASSIGN(const std::vector<std::string> names, context_.spool->jobs());
  for (const std::string& name : names) {
    const std::shared_ptr<JobFolder> job = job_named(name);
    job->note_spooled();
    VARVE_ASSIGN(const std::vector<SpooledSet> sets, context_.spool->sets(name, [this](const Status& bad) {
      context_.log("left alone in the spool: " + bad.to_string());
    }));
    for (const SpooledSet& set : sets) {
      if (const Status taken = take_up(*job, set); !taken.ok())
        context_.log("left alone in the spool: " + name + "/" + set.record.name + ": " + taken.to_string());
    }
  }
  return {};
}

Status RootFolder::take_up(JobFolder& job, const SpooledSet& spooled) {
  VARVE_ASSIGN(const std::optional<SetRecord> committed, context_.commit->committed_before(spooled));
  if (committed) {
    context_.log(committed->name.to_string() + " was committed before the last mount ended");
    return context_.spool->discard(spooled);
  }
  VARVE_ASSIGN(const std::shared_ptr<OpenSet> set, job.adopt(spooled));
  const std::optional<std::string> lost = set->folder()->lost_file();
  context_.log(
      job.name() + "/" + spooled.record.name + " is open still" +
      (set->summary().unfinished ? ", and not finished: it is sealed only by a rename or by `varve seal`" : "") +
      (lost ? "; it is not sealed as long as it has " + *lost + ", which has lost what was written to it" : ""));
  return {};
}

void RootFolder::seal_quiet_sets() {
  for (const std::shared_ptr<JobFolder>& job : known_jobs()) job->seal_quiet_sets();
}

MountResult<NodeView> RootFolder::look(uint32_t id) { return context_.folder_view(inode_of(0, id)); }

MountResult<NodeView> RootFolder::find(uint32_t, const std::string& name) {
  MOUNT_ASSIGN(const std::shared_ptr<JobFolder> job, find_job(name));
  return job->look(kTop);
}

MountResult<std::vector<ListedName>> RootFolder::list(uint32_t) {
  const Result<std::vector<std::string>> stored = context_.catalog.jobs();
  if (!stored.ok()) return errno_of(stored.status());
  for (const std::string& name : *stored) job_named(name);
  std::vector<ListedName> names;
  for (const std::shared_ptr<JobFolder>& job : known_jobs()) {
    if (!job->is_spooled() && !std::binary_search(stored->begin(), stored->end(), job->name())) continue;
    MOUNT_ASSIGN(const NodeView view, job->look(kTop));
    names.push_back({job->name(), view.status.st_ino, S_IFDIR});
  }
  return names;
}

MountResult<NodeView> RootFolder::make_folder(uint32_t, const std::string& name, uint32_t) {
  if (!check_job_name(name).ok()) return bad_name(name);
  if (find_job(name).ok()) return Errno{EEXIST};
  if (const Status made = context_.spool->make_job(name); !made.ok()) return errno_of(made);
  const std::shared_ptr<JobFolder> job = job_named(name);
  job->note_spooled();
  return job->look(kTop);
}

Errno RootFolder::remove(uint32_t, const std::string& name, int flags) {
  if (flags != AT_REMOVEDIR) return {EISDIR};
  MOUNT_ASSIGN(const std::shared_ptr<JobFolder> job, find_job(name));
  return job->remove_job();
}

}  // namespace varve
