#include "mount/mounted_store.h"

namespace varve {

namespace {
uint32_t realm_in(uint64_t inode) { return static_cast<uint32_t>(inode >> 32); }
uint32_t id_in(uint64_t inode) { return static_cast<uint32_t>(inode); }

Status not_a_set() {
  return Status::invalid_argument("this is not the folder of a set", "",
                                  "name DIR/JOB/STEP, DIR being where the store is mounted");
}
}  // namespace

MountedStore::MountedStore(const Store& store, const Spool* spool, SetCommit* commit, Clock& clock, const MountLog& log,
                           MountedStoreOptions options)
    : context_(store, spool, commit, clock, log, std::move(options)), root_(std::make_shared<RootFolder>(context_)) {
  context_.realms.set(realm_in(kRoot), {.folder = root_, .job = {}, .open = {}});
}

MountedStore::~MountedStore() {
  if (context_.commit != nullptr) context_.commit->cancel();
  context_.keeper.stop();
}

Status MountedStore::take_up_spool() { return context_.is_read_only() ? Status() : root_->take_up_spool(); }

void MountedStore::seal_quiet_sets() {
  if (!context_.is_read_only() && context_.options.seal_seconds > 0) root_->seal_quiet_sets();
}

Status MountedStore::start_sealing() {
  if (context_.is_read_only()) return {};
  return context_.keeper.start(*context_.spool, [this] { seal_quiet_sets(); });
}

MountResult<MountedStore::Place> MountedStore::place_of(uint64_t inode, Use use) const {
  if (use == Use::change && context_.is_read_only()) return Errno{EROFS};
  MOUNT_ASSIGN(Realm realm, context_.realms.at(realm_in(inode)));
  return Place{std::move(realm.folder), id_in(inode)};
}

MountResult<NodeView> MountedStore::look(uint64_t inode) {
  MOUNT_ASSIGN(const Place place, place_of(inode));
  return place.folder->look(place.id);
}

MountResult<NodeView> MountedStore::find(uint64_t folder, const std::string& name) {
  MOUNT_ASSIGN(const Place place, place_of(folder));
  return place.folder->find(place.id, name);
}

void MountedStore::forget(uint64_t inode, uint64_t count) {
  if (const MountResult<Place> place = place_of(inode); place.ok()) place->folder->forget(place->id, count);
}

MountResult<std::vector<ListedName>> MountedStore::list(uint64_t folder) {
  MOUNT_ASSIGN(const Place place, place_of(folder));
  return place.folder->list(place.id);
}

MountResult<std::string> MountedStore::read_link(uint64_t inode) {
  MOUNT_ASSIGN(const Place place, place_of(inode));
  return place.folder->read_link(place.id);
}

MountResult<std::unique_ptr<OpenFile>> MountedStore::open(uint64_t inode, int flags) {
  MOUNT_ASSIGN(const Place place, place_of(inode));
  MountResult<std::unique_ptr<OpenFile>> opened = place.folder->open(place.id, flags);
  if (opened.ok() || opened.error().number == EPERM) return opened;
  // It may have been sealed between the two steps; then it is found where it is now.
  MOUNT_ASSIGN(const Place now, place_of(inode));
  if (now.folder == place.folder) return opened;
  return now.folder->open(now.id, flags);
}

void MountedStore::release(uint64_t inode, std::unique_ptr<OpenFile> file) {
  if (!file->is_cut_off() && !file->has_failed_write()) return;
  const MountResult<Realm> realm = context_.realms.at(realm_in(inode));
  if (!realm.ok() || !realm->open) return;
  const OpenSetRecord set = realm->open->spooled().record;
  if (set.unfinished) return;
  const std::string name = set.job + "/" + set.name;
  if (!file->is_cut_off()) {
    return context_.log(name +
                        " is not finished: a program was told that a write to it failed. As long as it has that file, "
                        "it is sealed only by a rename or by `varve seal`");
  }
  // While the file still counts as open, so that nothing seals the set before.
  const Status noted = realm->open->note_unfinished();
  if (file->last_closed_by() == ClosedBy::signal) {
    context_.log(name +
                 " is not finished: a program was killed while it wrote. It is sealed only by a rename or by "
                 "`varve seal`");
  } else if (!told_of_unseen_.exchange(true)) {
    context_.log("the program that wrote " + name +
                 " cannot be seen from here (it is in another PID namespace, or "
                 "/proc hides it), so nobody knows whether it was killed. Sets of such programs are sealed only by a "
                 "rename or by `varve seal`");
  }
  if (!noted.ok()) context_.log("cannot note that " + name + " is not finished: " + noted.to_string());
}

Errno MountedStore::sync_folder(uint64_t inode) {
  MOUNT_ASSIGN(const Place place, place_of(inode));
  return place.folder->sync_folder(place.id);
}

MountResult<std::pair<NodeView, std::unique_ptr<OpenFile>>> MountedStore::create(uint64_t folder,
                                                                                 const std::string& name, int flags,
                                                                                 uint32_t mode) {
  MOUNT_ASSIGN(const Place place, place_of(folder, Use::change));
  return place.folder->create(place.id, name, flags, mode);
}

MountResult<NodeView> MountedStore::make_folder(uint64_t folder, const std::string& name, uint32_t mode) {
  MOUNT_ASSIGN(const Place place, place_of(folder, Use::change));
  return place.folder->make_folder(place.id, name, mode);
}

MountResult<NodeView> MountedStore::make_link(uint64_t folder, const std::string& name, const std::string& target) {
  MOUNT_ASSIGN(const Place place, place_of(folder, Use::change));
  return place.folder->make_link(place.id, name, target);
}

Errno MountedStore::remove(uint64_t folder, const std::string& name, int flags) {
  MOUNT_ASSIGN(const Place place, place_of(folder, Use::change));
  return place.folder->remove(place.id, name, flags);
}

Errno MountedStore::rename(uint64_t folder, const std::string& name, uint64_t new_folder, const std::string& new_name,
                           unsigned flags) {
  MOUNT_ASSIGN(const Place from, place_of(folder, Use::change));
  MOUNT_ASSIGN(const Place to, place_of(new_folder, Use::change));
  if (from.folder != to.folder) return {EXDEV};
  return from.folder->rename(from.id, name, to.id, new_name, flags);
}

MountResult<NodeView> MountedStore::change(uint64_t inode, const AttributeChange& change, OpenFile* file) {
  MOUNT_ASSIGN(const Place place, place_of(inode, Use::change));
  return place.folder->change(place.id, change, file);
}

MountResult<struct statvfs> MountedStore::disk() const {
  struct statvfs status {};
  if (::statvfs(context_.options.disk_folder.c_str(), &status) != 0) return Errno{errno};
  return status;
}

Status MountedStore::seal(uint64_t set_folder) {
  const MountResult<Realm> realm = context_.realms.at(realm_in(set_folder));
  if (!realm.ok() || !realm->job) return not_a_set();
  if (!realm->open) return {};
  if (id_in(set_folder) != MountedFolder::kTop) return not_a_set();
  std::string name = realm->open->spooled().record.name;
  // As a rename would: the temporary name is gone, and nothing else is known by it.
  constexpr std::string_view kEnd = ".tmp";
  if (name.ends_with(kEnd)) name.resize(name.size() - kEnd.size());
  return realm->job->seal(realm->open, name, 0);
}

Result<std::string> MountedStore::describe(uint64_t set_folder) {
  const MountResult<Realm> realm = context_.realms.at(realm_in(set_folder));
  if (!realm.ok() || !realm->job) return not_a_set();
  if (const auto stored = std::dynamic_pointer_cast<StoredSet>(realm->folder))
    return "committed as " + stored->record().name.to_string() + "\n";
  const OpenSet::Summary set = realm->open->summary();
  std::string text = set.sealing ? "being sealed" : "open";
  text += ": " + std::to_string(set.written.files) + " files, " + std::to_string(set.written.bytes) + " bytes, " +
          std::to_string(set.written.writers) + " open for writing, quiet for " +
          std::to_string(static_cast<uint64_t>(set.written.quiet_seconds)) + " s\n";
  if (set.unfinished)
    text +=
        "unfinished: a write failed, or a program was, or may have been, stopped while it wrote; it is not sealed by "
        "itself\n";
  if (const std::optional<std::string> lost = realm->open->folder()->lost_file())
    text += "not sealed as long as it has " + *lost + ", which has lost what was written to it\n";
  if (!set.failure.ok()) text += "not sealed: " + set.failure.to_string() + "\n";
  return text;
}

}  // namespace varve
