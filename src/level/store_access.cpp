#include "level/store_access.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "backend/throttled_backend.h"
#include "comm/agreement.h"
#include "store/catalog.h"
#include "store/chunk_index.h"
#include "store/job_lease.h"

namespace varve {

namespace {
/// Creates a store unless it is there, as opening it has told. Two jobs, or two ranks, may do it at once. Whether this
/// one has.
template <class Create>
Result<bool> create_unless(const Status& there, const Create& create) {
  if (there.ok()) return false;
  if (there.code() != StatusCode::not_found) return there;
  const Status created = create();
  if (created.code() == StatusCode::already_exists) return false;
  VARVE_TRY(created);
  return true;
}

std::string canonical(const std::string& path) {
  std::error_code error;
  const std::filesystem::path found = std::filesystem::canonical(path, error);
  return error ? path : found.string();
}
}  // namespace

std::string LevelStore::path_of(const LevelSpec& spec, const std::string& node) {
  const bool named = spec.is_of_node() && !node.empty();
  return named ? join_path(spec.place, "node-" + node) : spec.place;
}

Status LevelStore::prepare_parent(FileSystem& files, const LevelSpec& spec, const std::string& path) {
  // Store::create() makes one folder.
  if (path == spec.place) return {};
  VARVE_TRY(files.create_directory(spec.place));
  return settle_root(files, spec.place);
}

Result<LevelStore::Prepared> LevelStore::prepare(FileSystem& files, const LevelSpec& spec, const std::string& path,
                                                 const ReachOptions& reach) {
  if (spec.is_on_servers()) {
    VARVE_ASSIGN(const std::unique_ptr<StorePlace> place, open_location(spec.name(), {.reach = reach}));
    const Result<bool> made = create_unless(open_store(*place).status(), [&] { return create_store(*place); });
    VARVE_TRY(made.status().with_context(spec.name()));
    return Prepared{spec.name(), *made};
  }
  VARVE_TRY(prepare_parent(files, spec, path));
  VARVE_ASSIGN(const bool made,
               create_unless(Store::open(files, path).status(), [&] { return Store::create(files, path); }));
  return Prepared{known_path(spec, path), made};
}

std::string LevelStore::known_path(const LevelSpec& spec, const std::string& path) {
  return spec.is_on_servers() ? spec.name() : canonical(path);
}

bool LevelStore::is_away(const Status& failure) {
  return failure.code() == StatusCode::io_error || failure.code() == StatusCode::busy ||
         failure.code() == StatusCode::no_space;
}

Result<std::unique_ptr<LevelStore>> LevelStore::open(FileSystem& files, const LevelSpec& spec, const std::string& path,
                                                     const ReachOptions& reach, Clock& clock) {
  std::unique_ptr<StorePlace> place;
  if (spec.is_on_servers()) {
    VARVE_ASSIGN(place, open_location(spec.name(), {.reach = reach}));
  }
  std::unique_ptr<LevelStore> level(new LevelStore(std::move(place)));
  StorePlace* const there = level->place_.get();
  VARVE_ASSIGN(level->store_, there != nullptr ? open_store(*there) : Store::open(files, path));
  if (spec.bytes_per_second) {
    level->throttled_ =
        std::make_unique<ThrottledBackend>(level->store_->backend(), static_cast<double>(*spec.bytes_per_second), clock,
                                           [&is_slowed = level->is_slowed_] { return !is_slowed; });
    VARVE_ASSIGN(level->slowed_,
                 there != nullptr ? open_store(*there, level->throttled_.get()) : Store::open(*level->throttled_));
  }
  return level;
}

void LevelStore::note_durable() const {
  store_->note_durable();
  slowed().note_durable();
}

namespace {
/// What a node leaves in its folder for a moment, under a name that other runs take for a leftover (FORMAT.md, "The
/// folder of a store").
std::string mark_name(UniqueId run, uint32_t node) {
  for (size_t i = 0; i < sizeof node; ++i) run.bytes[i] ^= static_cast<std::byte>(node >> (8 * i));
  return fmt::format("varve.store.{}.tmp", run.hex());
}

Status look_for_others(const RankSeat& seat, FileSystem& files, const std::string& store, const UniqueId& run) {
  VARVE_ASSIGN(const std::vector<DirectoryEntry> entries, files.list(store));
  for (uint32_t node = 0; node < seat.nodes.size(); ++node) {
    const std::string mark = mark_name(run, node);
    const bool there =
        std::any_of(entries.begin(), entries.end(), [&](const DirectoryEntry& entry) { return entry.name == mark; });
    if (!there || node == seat.own_node) continue;
    return Status::invalid_argument(fmt::format("the nodes {} and {} see the same folder, and each should have its own",
                                                seat.nodes[node].name, seat.node().name),
                                    store, "name a folder on a disk of the node, or dir: for one that all share");
  }
  return {};
}
}  // namespace

Status check_own_folders(Communicator& ranks, const RankSeat& seat, FileSystem& files, const std::string& store,
                         const UniqueId& run) {
  const bool speaks = seat.node().leader == ranks.rank();
  const std::string mark = join_path(store, mark_name(run, seat.own_node));
  // Whether a full disk can be used is for checkpoints to find out.
  if (speaks) files.create(mark).status().ignore("the other nodes then see nothing");
  VARVE_TRY(ranks.barrier());
  Status alone = agree(ranks, speaks ? look_for_others(seat, files, store, run) : Status());
  // Nobody's goes before all have looked.
  if (speaks) files.remove(mark).ignore("it is in nobody's way");
  return alone;
}

bool StoreAccess::is_at_work() const {
  if (!spec_.is_on_servers() || world_.ranks.rank() == 0) return true;
  return is_nearest_ ? world_.seat.leads_group : world_.has_node_level && world_.speaks_for_node();
}

/// One that was away may be back: it is looked for again by each call.
Status StoreAccess::look() {
  if (!away_) return {};
  VARVE_ASSIGN(const ByteVector told, told_by_first(world_.ranks, [this]() -> Result<ByteVector> {
                 Result<std::string> path = prepare();
                 if (!path.ok() && !may_be_away(path.status())) return path.status();
                 if (!path.ok()) {
                   note_away(path.status());
                   return ByteVector();
                 }
                 why_away_ = {};
                 const ByteSpan bytes = as_bytes(*path);
                 return ByteVector(bytes.begin(), bytes.end());
               }));
  path_ = as_text(told);
  away_ = path_.empty();
  return {};
}

Status StoreAccess::prepare_on_node() {
  if (!spec_.is_of_node()) return {};
  path_ = own_path();
  const Status made = speaks() ? prepare().status() : Status();
  VARVE_TRY(agree(world_.ranks, made));
  Result<std::unique_ptr<LevelStore>> opened = LevelStore::open(world_.files, spec_, path_, world_.reach, world_.clock);
  VARVE_TRY(agree(world_.ranks, opened.status()));
  store_ = std::move(*opened);
  opened_ = &store_->store();
  if (speaks()) beginnings_ = read_beginnings(store_->store(), world_.job);
  return check_own_folders(world_.ranks, world_.seat, world_.files, path_, world_.run);
}

Status StoreAccess::note_beginning(bool anew) {
  if (!spec_.is_of_node() || !speaks()) return {};
  if (!anew) beginnings_.clear();
  beginnings_.push_back({world_.run, world_.first_number});
  return write_beginnings(store_->store(), world_.job, beginnings_);
}

Status StoreAccess::open() {
  VARVE_TRY(agree_on(away_ || !is_at_work() ? Status() : store().status()));
  if (away_ || spec_.is_of_node()) return {};
  // One makes its name durable for all who write there, and looks whether there is anything to be referred to.
  const bool looks = speaks() && store_;
  std::array<uint64_t, 2> told = {
      looks && store_->store().make_durable().ok() ? uint64_t{1} : 0,
      looks && is_nearest_ && ChunkIndex::would_be_empty(store_->store()) ? uint64_t{1} : 0};
  VARVE_TRY(world_.ranks.all_max(told));
  if (store_ && told[0] != 0) store_->note_durable();
  was_empty_ = told[1] != 0;
  return {};
}

/// Who speaks for the store says to all whether it is away.
Status StoreAccess::agree_on(Status met) {
  if (!met.ok() && speaks() && may_be_away(met)) {
    note_away(met);
    met = {};
  }
  VARVE_TRY(agree(world_.ranks, met));
  std::array<uint64_t, 1> away = {away_ ? uint64_t{1} : uint64_t{0}};
  VARVE_TRY(world_.ranks.all_max(away));
  away_ = away[0] != 0;
  return {};
}

Status StoreAccess::reach(bool makes) {
  why_away_ = makes ? prepare().status() : Status();
  path_ = LevelStore::known_path(spec_, own_path());
  away_ = false;
  if (why_away_.ok()) why_away_ = store().status();
  away_ = !why_away_.ok();
  return why_away_;
}

Result<std::string> StoreAccess::prepare() {
  VARVE_ASSIGN(LevelStore::Prepared prepared, LevelStore::prepare(world_.files, spec_, own_path(), world_.reach));
  was_made_ = was_made_ || prepared.made;
  return std::move(prepared.path);
}

void StoreAccess::close_if_idle() {
  if (is_at_work()) return;
  opened_ = nullptr;
  store_.reset();
}

Result<const Store*> StoreAccess::store() {
  if (away_) return Status::io_error("the level cannot be reached", spec_.name());
  if (!store_) {
    VARVE_ASSIGN(store_, LevelStore::open(world_.files, spec_, path_, world_.reach, world_.clock));
    opened_ = &store_->store();
  }
  return opened();
}

void StoreAccess::note_away(const Status& why) {
  const bool told = !why_away_.ok();
  away_ = true;
  why_away_ = why;
  if (!told)
    world_.warnings.add(
        why.with_context(fmt::format("the run goes on without {} until it can be reached", spec_.name())));
}

}  // namespace varve
