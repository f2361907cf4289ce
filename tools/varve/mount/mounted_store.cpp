#include "mount/mounted_store.h"

#include <algorithm>
#include <ctime>

namespace varve {

namespace {
// Numbers in a job's folder, beside the folder itself.
constexpr uint32_t kJobTop = SetFolder::kTop;
constexpr uint32_t kLatestLink = 2;
constexpr uint32_t kFirstAlias = 16;
constexpr const char* kLatest = "latest";
constexpr uint32_t kRealmShift = 32;

uint32_t id_in(uint64_t inode) { return static_cast<uint32_t>(inode); }

std::optional<uint64_t> canonical_step(const std::string& name) {
  const std::optional<StepName> parsed = parse_step_name(name);
  return parsed && parsed->canonical ? std::optional(parsed->step) : std::nullopt;
}
}  // namespace

MountedStore::MountedStore(const Store& store, const Spool* spool, SetCommit* commit, Clock& clock, const MountLog& log,
                           MountedStoreOptions options)
    : store_(store),
      spool_(spool),
      commit_(commit),
      clock_(clock),
      log_(log),
      options_(std::move(options)),
      catalog_(store),
      data_(store, log, options_.memory_bytes, options_.read_ahead_threads),
      started_{::time(nullptr), 0} {}

MountedStore::~MountedStore() { stop_sealing(); }

// Numbers and names

uint32_t MountedStore::new_realm(Realm realm) {
  const uint32_t number = next_realm_++;
  realms_.emplace(number, std::move(realm));
  return number;
}

MountResult<MountedStore::Realm> MountedStore::realm_of(uint64_t inode) const {
  const MutexLock lock(mutex_);
  const auto found = realms_.find(static_cast<uint32_t>(inode >> kRealmShift));
  if (found == realms_.end()) return Errno{ESTALE};
  return found->second;
}

MountResult<std::shared_ptr<SetFolder>> MountedStore::set_of(uint64_t inode) const {
  MOUNT_ASSIGN(const Realm realm, realm_of(inode));
  if (!realm.set) return Errno{EPERM};
  return realm.set;
}

std::shared_ptr<MountedStore::Job> MountedStore::job_named(const std::string& name) {
  const MutexLock lock(mutex_);
  std::shared_ptr<Job>& job = jobs_[name];
  if (!job) {
    job = std::make_shared<Job>();
    job->name = name;
    Realm realm;
    realm.job = job;
    job->realm = new_realm(std::move(realm));
  }
  return job;
}

MountResult<std::shared_ptr<MountedStore::Job>> MountedStore::find_job(const std::string& name) {
  if (!check_job_name(name).ok()) return Errno{ENOENT};
  {
    const MutexLock lock(mutex_);
    const auto known = jobs_.find(name);
    if (known != jobs_.end() && known->second->spooled) return known->second;
  }
  const Result<FileStatus> status = store_.backend().status(catalog_.job_path(name));
  if (!status.ok()) return errno_of(status.status());
  if (!status->is_directory) return Errno{ENOENT};
  return job_named(name);
}

std::shared_ptr<OpenSet> MountedStore::open_set(const Job& job, const std::string& name) const {
  const MutexLock lock(mutex_);
  const auto found = job.open.find(name);
  return found == job.open.end() ? nullptr : found->second.set;
}

MountResult<std::shared_ptr<StoredSet>> MountedStore::stored_set(const std::shared_ptr<Job>& job, uint64_t step) {
  const SetName name{job->name, step};
  Result<SetRecord> record = catalog_.read(name);
  if (!record.ok()) {
    if (record.status().code() != StatusCode::not_found)
      log_("cannot read " + name.to_string() + ": " + record.status().to_string());
    return errno_of(record.status());
  }
  const MutexLock lock(mutex_);
  std::shared_ptr<StoredSet>& known = job->stored[step];
  const auto same_root = [](const GroupRecord& a, const GroupRecord& b) {
    return a.root == b.root && a.hint == b.hint;
  };
  if (known && std::equal(known->record().groups.begin(), known->record().groups.end(), record->groups.begin(),
                          record->groups.end(), same_root))
    return known;
  // New to us, or another set of that name: what is known of the old one keeps its numbers.
  const uint32_t number = new_realm({});
  known = std::make_shared<StoredSet>(number, std::move(*record), data_, options_.owner,
                                      options_.may_remove && !is_read_only());
  realms_[number].set = known;
  realms_[number].job_of_set = job;
  return known;
}

NodeView MountedStore::folder_view(uint32_t realm, bool may_change) const {
  NodeView view;
  view.status.st_ino = realm == 0 ? kRoot : inode_of(realm, kJobTop);
  view.status.st_mode = S_IFDIR | (may_change ? 0755 : 0555);
  view.status.st_nlink = 2;
  view.status.st_uid = options_.owner.user;
  view.status.st_gid = options_.owner.group;
  for (timespec* time : {&view.status.st_mtim, &view.status.st_ctim, &view.status.st_atim}) *time = started_;
  return view;
}

NodeView MountedStore::link_view(uint64_t inode, uint64_t step) const {
  NodeView view;
  view.status.st_ino = inode;
  view.status.st_mode = S_IFLNK | 0777;
  view.status.st_nlink = 1;
  view.status.st_uid = options_.owner.user;
  view.status.st_gid = options_.owner.group;
  for (timespec* time : {&view.status.st_mtim, &view.status.st_ctim, &view.status.st_atim}) *time = started_;
  view.status.st_size = static_cast<off_t>(std::to_string(step).size());
  return view;
}

// Looking

MountResult<NodeView> MountedStore::look(uint64_t inode) {
  if (inode == kRoot) return folder_view(0, !is_read_only());
  MOUNT_ASSIGN(const Realm realm, realm_of(inode));
  if (realm.set) return realm.set->look(id_in(inode));
  if (id_in(inode) == kJobTop) return folder_view(realm.job->realm, !is_read_only());
  MOUNT_ASSIGN(const std::string target, read_link(inode));
  return link_view(inode, canonical_step(target).value_or(0));
}

MountResult<std::string> MountedStore::read_link(uint64_t inode) {
  if (inode == kRoot) return Errno{EINVAL};
  MOUNT_ASSIGN(const Realm realm, realm_of(inode));
  if (realm.set) return realm.set->read_link(id_in(inode));
  if (id_in(inode) == kLatestLink) {
    const Result<std::vector<uint64_t>> steps = catalog_.steps(realm.job->name);
    if (!steps.ok()) return errno_of(steps.status());
    if (steps->empty()) return Errno{ENOENT};
    return std::to_string(steps->back());
  }
  const MutexLock lock(mutex_);
  const auto alias = realm.job->alias_links.find(id_in(inode));
  if (alias == realm.job->alias_links.end()) return Errno{EINVAL};
  return std::to_string(alias->second);
}

MountResult<NodeView> MountedStore::find(uint64_t folder, const std::string& name) {
  if (folder == kRoot) {
    MOUNT_ASSIGN(const std::shared_ptr<Job> job, find_job(name));
    return folder_view(job->realm, !is_read_only());
  }
  MOUNT_ASSIGN(const Realm realm, realm_of(folder));
  return realm.set ? realm.set->find(id_in(folder), name) : find_in_job(realm.job, name);
}

MountResult<NodeView> MountedStore::find_in_job(const std::shared_ptr<Job>& job, const std::string& name) {
  if (const std::shared_ptr<OpenSet> set = open_set(*job, name)) return set->top();
  if (const std::optional<uint64_t> step = canonical_step(name)) {
    MOUNT_ASSIGN(const std::shared_ptr<StoredSet> set, stored_set(job, *step));
    return set->top();
  }
  uint32_t id = 0;
  uint64_t step = 0;
  {
    const MutexLock lock(mutex_);
    if (name == kLatest && !job->latest_hidden) id = kLatestLink;
    if (const auto alias = job->aliases.find(name); alias != job->aliases.end()) {
      step = alias->second;
      for (const auto& [number, target] : job->alias_links) {
        if (target == step) id = number;
      }
    }
  }
  if (id == 0) return Errno{ENOENT};
  if (id == kLatestLink) {
    MOUNT_ASSIGN(const std::string target, read_link(inode_of(job->realm, id)));
    return link_view(inode_of(job->realm, id), canonical_step(target).value_or(0));
  }
  // An alias goes with its set.
  const Result<FileStatus> there = store_.backend().status(catalog_.record_path({job->name, step}));
  if (!there.ok()) return errno_of(there.status());
  return link_view(inode_of(job->realm, id), step);
}

void MountedStore::forget(uint64_t inode, uint64_t count) {
  if (const MountResult<Realm> realm = realm_of(inode); realm.ok() && realm->set)
    realm->set->forget(id_in(inode), count);
}

MountResult<std::vector<ListedName>> MountedStore::list(uint64_t folder) {
  if (folder == kRoot) return list_root();
  MOUNT_ASSIGN(const Realm realm, realm_of(folder));
  return realm.set ? realm.set->list(id_in(folder)) : list_job(realm.job);
}

MountResult<std::vector<ListedName>> MountedStore::list_root() {
  const Result<std::vector<std::string>> stored = catalog_.jobs();
  if (!stored.ok()) return errno_of(stored.status());
  for (const std::string& name : *stored) job_named(name);
  std::vector<ListedName> names;
  const MutexLock lock(mutex_);
  for (const auto& [name, job] : jobs_) {
    if (!job->spooled && !std::binary_search(stored->begin(), stored->end(), name)) continue;
    names.push_back({name, inode_of(job->realm, kJobTop), S_IFDIR});
  }
  return names;
}

MountResult<std::vector<ListedName>> MountedStore::list_job(const std::shared_ptr<Job>& job) {
  const Result<std::vector<uint64_t>> steps = catalog_.steps(job->name);
  if (!steps.ok()) return errno_of(steps.status());
  std::vector<ListedName> names;
  const MutexLock lock(mutex_);
  for (const uint64_t step : *steps) {
    if (job->open.count(std::to_string(step)) != 0) continue;
    // Who wants its number looks it up: that takes reading the set's record.
    const auto known = job->stored.find(step);
    names.push_back(
        {std::to_string(step), known == job->stored.end() ? 0 : inode_of(known->second->realm(), kJobTop), S_IFDIR});
  }
  for (const auto& [name, open] : job->open)
    names.push_back({name, inode_of(open.set->realm(), SetFolder::kTop), S_IFDIR});
  if (!steps->empty() && !job->latest_hidden) names.push_back({kLatest, inode_of(job->realm, kLatestLink), S_IFLNK});
  return names;
}

// Files

MountResult<std::unique_ptr<OpenFile>> MountedStore::open(uint64_t inode, int flags) {
  MOUNT_ASSIGN(const std::shared_ptr<SetFolder> set, set_of(inode));
  MountResult<std::unique_ptr<OpenFile>> opened = set->open(id_in(inode), flags);
  if (opened.ok() || opened.error().number == EPERM) return opened;
  // It may have been sealed between the two steps; then it is found where it is now.
  MOUNT_ASSIGN(const std::shared_ptr<SetFolder> now, set_of(inode));
  if (now == set) return opened;
  return now->open(id_in(inode), flags);
}

Errno MountedStore::sync_folder(uint64_t inode) {
  if (inode == kRoot) return {};
  MOUNT_ASSIGN(const Realm realm, realm_of(inode));
  return realm.set ? realm.set->sync_folder(id_in(inode)) : Errno{};
}

MountResult<std::pair<NodeView, std::unique_ptr<OpenFile>>> MountedStore::create(uint64_t folder,
                                                                                 const std::string& name, int flags,
                                                                                 uint32_t mode) {
  if (is_read_only()) return Errno{EROFS};
  if (folder == kRoot) return Errno{EPERM};
  MOUNT_ASSIGN(const std::shared_ptr<SetFolder> set, set_of(folder));
  return set->create(id_in(folder), name, flags, mode);
}

MountResult<NodeView> MountedStore::make_link(uint64_t folder, const std::string& name, const std::string& target) {
  if (is_read_only()) return Errno{EROFS};
  if (folder == kRoot) return Errno{EPERM};
  MOUNT_ASSIGN(const std::shared_ptr<SetFolder> set, set_of(folder));
  return set->make_link(id_in(folder), name, target);
}

MountResult<NodeView> MountedStore::change(uint64_t inode, const AttributeChange& change, OpenFile* file) {
  if (is_read_only()) return Errno{EROFS};
  if (inode == kRoot) return Errno{EPERM};
  MOUNT_ASSIGN(const std::shared_ptr<SetFolder> set, set_of(inode));
  return set->change(id_in(inode), change, file);
}

// Folders

MountResult<NodeView> MountedStore::make_folder(uint64_t folder, const std::string& name, uint32_t mode) {
  if (is_read_only()) return Errno{EROFS};
  if (folder == kRoot) return make_job_folder(name);
  MOUNT_ASSIGN(const Realm realm, realm_of(folder));
  return realm.set ? realm.set->make_folder(id_in(folder), name, mode) : make_set_folder(realm.job, name);
}

MountResult<NodeView> MountedStore::make_job_folder(const std::string& name) {
  if (!check_job_name(name).ok()) return Errno{name.size() > 100 ? ENAMETOOLONG : EINVAL};
  if (find_job(name).ok()) return Errno{EEXIST};
  if (const Status made = spool_->make_job(name); !made.ok()) return errno_of(made);
  const std::shared_ptr<Job> job = job_named(name);
  const MutexLock lock(mutex_);
  job->spooled = true;
  return folder_view(job->realm, true);
}

Result<std::shared_ptr<OpenSet>> MountedStore::adopt_open_set(const std::shared_ptr<Job>& job, SpooledSet spooled) {
  uint32_t number = 0;
  {
    const MutexLock lock(mutex_);
    number = new_realm({});
  }
  const std::string name = spooled.record.name;
  VARVE_ASSIGN(std::shared_ptr<OpenSet> set,
               OpenSet::load(number, std::move(spooled), *spool_, clock_, log_, options_.open_sets));
  const MutexLock lock(mutex_);
  realms_[number].set = set;
  realms_[number].job_of_set = job;
  job->open[name] = {set, {}};
  return set;
}

MountResult<NodeView> MountedStore::make_set_folder(const std::shared_ptr<Job>& job, const std::string& name) {
  const std::optional<StepName> parsed = parse_step_name(name);
  if (!parsed) return Errno{name.size() > 100 ? ENAMETOOLONG : EINVAL};
  if (open_set(*job, name)) return Errno{EEXIST};
  if (!parsed->temporary && store_.backend().status(catalog_.record_path({job->name, parsed->step})).ok())
    return Errno{EEXIST};
  Result<SpooledSet> spooled = spool_->make_set(job->name, name);
  if (!spooled.ok()) {
    log_("cannot make " + job->name + "/" + name + ": " + spooled.status().to_string());
    return errno_of(spooled.status());
  }
  const Result<std::shared_ptr<OpenSet>> set = adopt_open_set(job, std::move(*spooled));
  if (!set.ok()) return errno_of(set.status());
  {
    const MutexLock lock(mutex_);
    job->spooled = true;
    job->aliases.erase(name);
  }
  return (*set)->top();
}

Errno MountedStore::remove(uint64_t folder, const std::string& name) {
  if (is_read_only()) return {EROFS};
  if (folder == kRoot) return {EISDIR};
  MOUNT_ASSIGN(const Realm realm, realm_of(folder));
  if (realm.set) return realm.set->remove(id_in(folder), name);
  if (name != kLatest) return {open_set(*realm.job, name) || canonical_step(name) ? EISDIR : EPERM};
  // `rm -r JOB` wants it gone before the folder. It is back with the next set.
  if (!options_.may_remove) return {EPERM};
  const MutexLock lock(mutex_);
  realm.job->latest_hidden = true;
  return {};
}

Errno MountedStore::remove_folder(uint64_t folder, const std::string& name) {
  if (is_read_only()) return {EROFS};
  if (folder == kRoot) return remove_job_folder(name);
  MOUNT_ASSIGN(const Realm realm, realm_of(folder));
  return realm.set ? realm.set->remove_folder(id_in(folder), name) : remove_set_folder(realm.job, name);
}

Errno MountedStore::remove_job_folder(const std::string& name) {
  MOUNT_ASSIGN(const std::shared_ptr<Job> job, find_job(name));
  const Result<std::vector<uint64_t>> steps = catalog_.steps(name);
  if (!steps.ok()) return errno_of(steps.status());
  {
    const MutexLock lock(mutex_);
    if (!steps->empty() || !job->open.empty()) return {ENOTEMPTY};
    job->spooled = false;
  }
  if (const Status removed = spool_->remove_job(name); !removed.ok()) {
    const MutexLock lock(mutex_);
    job->spooled = true;
    return {removed.code() == StatusCode::already_exists ? ENOTEMPTY : errno_of(removed).number};
  }
  // A folder without sets, which the last one has left in the store.
  store_.backend().remove_folder(catalog_.job_path(name)).ignore("not there, or taken by a new save");
  return {};
}

Errno MountedStore::remove_set_folder(const std::shared_ptr<Job>& job, const std::string& name) {
  if (const std::shared_ptr<OpenSet> set = open_set(*job, name)) {
    if (!set->is_empty()) return {ENOTEMPTY};
    MOUNT_TRY(set->begin_sealing());  // nothing can come into it any more
    if (!set->is_empty()) {
      set->give_up_sealing({});
      return {ENOTEMPTY};
    }
    if (const Status gone = spool_->discard(set->spooled()); !gone.ok()) {
      set->give_up_sealing(gone);
      return errno_of(gone);
    }
    set->finish_sealing();
    {
      const MutexLock lock(mutex_);
      job->open.erase(name);
    }
    empty_trash_soon();
    return {};
  }
  if (const std::optional<uint64_t> step = canonical_step(name)) return drop(job, *step);
  return {name == kLatest ? ENOTDIR : ENOENT};
}

Errno MountedStore::drop(const std::shared_ptr<Job>& job, uint64_t step) {
  if (!options_.may_remove) return {EPERM};
  MOUNT_ASSIGN(const std::shared_ptr<StoredSet> set, stored_set(job, step));
  MOUNT_ASSIGN(const bool cleared, set->is_cleared());
  if (!cleared) return {ENOTEMPTY};
  // The job's folder stays until it is removed, too.
  if (const Status kept = spool_->make_job(job->name); !kept.ok()) return errno_of(kept);
  if (const Status dropped = catalog_.remove({job->name, step}); !dropped.ok()) {
    log_("cannot drop " + set->record().name.to_string() + ": " + dropped.to_string());
    return errno_of(dropped);
  }
  log_("dropped " + set->record().name.to_string());
  const MutexLock lock(mutex_);
  job->spooled = true;
  job->stored.erase(step);
  return {};
}

Errno MountedStore::rename(uint64_t folder, const std::string& name, uint64_t new_folder, const std::string& new_name,
                           unsigned flags) {
  if (is_read_only()) return {EROFS};
  if (folder == kRoot || new_folder == kRoot) return {folder == new_folder ? EPERM : EXDEV};
  MOUNT_ASSIGN(const Realm from, realm_of(folder));
  MOUNT_ASSIGN(const Realm to, realm_of(new_folder));
  if (from.set && from.set == to.set) return from.set->rename(id_in(folder), name, id_in(new_folder), new_name, flags);
  if (!from.job || from.job != to.job) return {EXDEV};
  if ((flags & ~static_cast<unsigned>(RENAME_NOREPLACE)) != 0) return {EINVAL};
  return rename_set(from.job, name, new_name);
}

Errno MountedStore::rename_set(const std::shared_ptr<Job>& job, const std::string& name, const std::string& new_name) {
  const std::shared_ptr<OpenSet> set = open_set(*job, name);
  if (!set) return {canonical_step(name) || name == kLatest ? EROFS : ENOENT};
  const std::optional<StepName> wanted = parse_step_name(new_name);
  if (!wanted) return {new_name.size() > 100 ? ENAMETOOLONG : EINVAL};
  if (name == new_name) return {};
  if (open_set(*job, new_name)) return {EEXIST};
  const bool taken = store_.backend().status(catalog_.record_path({job->name, wanted->step})).ok();
  if (taken && !wanted->temporary) return {EEXIST};
  if (wanted->temporary) {
    if (const Status named = set->set_name(new_name); !named.ok()) return errno_of(named);
    const MutexLock lock(mutex_);
    job->open[new_name] = job->open[name];
    job->open.erase(name);
    return {};
  }
  const Status sealed = seal_as(job, set, new_name, 0);
  return errno_of(sealed);
}

// Sealing

Status MountedStore::seal_as(const std::shared_ptr<Job>& job, const std::shared_ptr<OpenSet>& set,
                             const std::string& alias, double quiet_seconds) {
  const std::optional<StepName> parsed = parse_step_name(alias);
  if (!parsed) return Status::invalid_argument("this name tells no step", alias);
  const SetName name{job->name, parsed->step};
  const Errno begun = set->begin_sealing(quiet_seconds);
  if (begun.number == EIO) {
    return Status::io_error("a file of the set could not be made durable", name.to_string(),
                            "remove it, and write it again");
  }
  if (!begun.ok()) {
    return Status::busy("files of the set are open for writing, or it is being sealed already", name.to_string(),
                        "close them first");
  }
  const Result<SetRecord> record = commit_->commit(set->spooled(), name);
  if (!record.ok()) {
    log_("cannot seal " + name.to_string() + ": " + record.status().to_string());
    set->give_up_sealing(record.status());
    return record.status();
  }
  show_sealed(job, set, *record, alias);
  log_("sealed " + name.to_string());
  if (options_.note_sealed) options_.note_sealed(name);
  return {};
}

void MountedStore::show_sealed(const std::shared_ptr<Job>& job, const std::shared_ptr<OpenSet>& set,
                               const SetRecord& record, const std::string& alias) {
  const SpooledSet spooled = set->spooled();
  uint32_t number = set->realm();
  const bool may_hide = options_.may_remove;
  auto stored = std::make_shared<StoredSet>(number, record, data_, options_.owner, may_hide);
  const Status adopted = stored->adopt(set->numbers());
  if (!adopted.ok()) {
    // Whoever has it open finds it anew under other numbers; nobody gets one file for another.
    log_("cannot look into " + record.name.to_string() + " after sealing it: " + adopted.to_string());
  }
  {
    const MutexLock lock(mutex_);
    if (!adopted.ok()) {
      number = new_realm({});
      stored = std::make_shared<StoredSet>(number, record, data_, options_.owner, may_hide);
    }
    realms_[number].set = stored;
    realms_[number].job_of_set = job;
    job->stored[record.name.step] = stored;
    job->open.erase(spooled.record.name);
    job->latest_hidden = false;
    if (parse_step_name(alias) && !parse_step_name(alias)->canonical) {
      job->aliases[alias] = record.name.step;
      job->alias_links[kFirstAlias + static_cast<uint32_t>(job->alias_links.size())] = record.name.step;
    }
  }
  set->finish_sealing();
  if (const Status gone = spool_->discard(spooled); !gone.ok())
    log_("cannot clear the spool of " + record.name.to_string() + ": " + gone.to_string());
  empty_trash_soon();
}

namespace {
Status not_a_set() {
  return Status::invalid_argument("this is not the folder of a set", "",
                                  "name DIR/JOB/STEP, DIR being where the store is mounted");
}
}  // namespace

Status MountedStore::seal(uint64_t set_folder) {
  const MountResult<Realm> realm = realm_of(set_folder);
  const auto set = realm.ok() ? std::dynamic_pointer_cast<OpenSet>(realm->set) : nullptr;
  if (realm.ok() && std::dynamic_pointer_cast<StoredSet>(realm->set)) return {};
  if (!set || id_in(set_folder) != SetFolder::kTop) return not_a_set();
  std::string name = set->spooled().record.name;
  // As a rename would: the temporary name is gone, and nothing else is known by it.
  constexpr std::string_view kEnd = ".tmp";
  if (name.ends_with(kEnd)) name.resize(name.size() - kEnd.size());
  return seal_as(realm->job_of_set, set, name, 0);
}

Result<std::string> MountedStore::describe(uint64_t set_folder) {
  const MountResult<Realm> realm = realm_of(set_folder);
  if (realm.ok()) {
    if (const auto stored = std::dynamic_pointer_cast<StoredSet>(realm->set))
      return "committed as " + stored->record().name.to_string() + "\n";
    if (const auto set = std::dynamic_pointer_cast<OpenSet>(realm->set)) {
      const OpenSet::State state = set->state();
      std::string text = state.sealing ? "being sealed" : "open";
      text += ": " + std::to_string(state.files) + " files, " + std::to_string(state.bytes) + " bytes, " +
              std::to_string(state.writers) + " open for writing, quiet for " +
              std::to_string(static_cast<uint64_t>(state.quiet_seconds)) + " s\n";
      if (state.unfinished) text += "unfinished: a program was stopped while it wrote; it is not sealed by itself\n";
      if (!state.failure.ok()) text += "not sealed: " + state.failure.to_string() + "\n";
      return text;
    }
  }
  return not_a_set();
}

MountResult<struct statvfs> MountedStore::disk() const {
  struct statvfs status {};
  if (::statvfs(options_.disk_folder.c_str(), &status) != 0) return Errno{errno};
  return status;
}

}  // namespace varve
