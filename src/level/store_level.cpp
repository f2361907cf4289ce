#include "level/store_level.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "backend/throttled_backend.h"
#include "comm/agreement.h"
#include "engine/repair.h"
#include "level/farther_level.h"
#include "level/levels.h"
#include "level/stored_image.h"
#include "service/location.h"
#include "store/catalog.h"
#include "store/commit.h"
#include "store/condemn.h"

namespace varve {

namespace {
/// Creates a store unless it is there, as opening it has told. Two jobs, or two ranks, may do it at once.
template <class Create>
Status create_unless(Status there, const Create& create) {
  if (there.code() != StatusCode::not_found) return there;
  const Status created = create();
  return created.code() == StatusCode::already_exists ? Status() : created;
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
  return Store::sync_name(files, spec.place);
}

Result<std::string> LevelStore::prepare(FileSystem& files, const LevelSpec& spec, const std::string& path,
                                        const ReachOptions& reach) {
  if (spec.is_on_servers()) {
    VARVE_ASSIGN(const std::unique_ptr<StorePlace> place, open_location(spec.name(), {.reach = reach}));
    const Status created = create_unless(open_store(*place).status(), [&] { return create_store(*place); });
    VARVE_TRY(created.with_context(spec.name()));
    return spec.name();
  }
  VARVE_TRY(prepare_parent(files, spec, path));
  VARVE_TRY(create_unless(Store::open(files, path).status(), [&] { return Store::create(files, path); }));
  return known_path(spec, path);
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
    level->throttled_ = std::make_unique<ThrottledBackend>(level->store_->backend(),
                                                           static_cast<double>(*spec.bytes_per_second), clock);
    VARVE_ASSIGN(level->slowed_,
                 there != nullptr ? open_store(*there, level->throttled_.get()) : Store::open(*level->throttled_));
  }
  return level;
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

StoreLevel::StoreLevel(const LevelSpec& spec, LevelWorld& world, bool is_nearest)
    : Level(spec, world), is_nearest_(is_nearest), away_(!spec.is_of_node()) {}

bool StoreLevel::is_at_work() const {
  if (!spec_.is_on_servers() || world_.ranks.rank() == 0) return true;
  return is_nearest_ ? world_.seat.leads_group : world_.has_node_level && world_.speaks_for_node();
}

// To open it

/// One that was away may be back: it is looked for again by each call.
Status StoreLevel::look() {
  if (!away_) return {};
  Status looked;
  std::string found;
  if (world_.ranks.rank() == 0) {
    Result<std::string> path = LevelStore::prepare(world_.files, spec_, LevelStore::path_of(spec_, {}), world_.reach);
    if (path.ok()) {
      found = std::move(*path);
      why_away_ = {};
    } else if (may_be_away(path.status())) {
      note_away(path.status());
    } else {
      looked = path.status();
    }
  }
  VARVE_TRY(agree(world_.ranks, looked));
  VARVE_ASSIGN(const ByteVector told, world_.ranks.broadcast(as_bytes(found), 0));
  path_ = as_text(told);
  away_ = path_.empty();
  return {};
}

Status StoreLevel::prepare_on_node() {
  if (!is_of_node()) return {};
  path_ = own_path();
  if (speaks()) was_there_ = Store::open(world_.files, path_).ok();
  const Status made = speaks() ? LevelStore::prepare(world_.files, spec_, path_, world_.reach).status() : Status();
  VARVE_TRY(agree(world_.ranks, made));
  Result<std::unique_ptr<LevelStore>> opened = LevelStore::open(world_.files, spec_, path_, world_.reach, world_.clock);
  VARVE_TRY(agree(world_.ranks, opened.status()));
  store_ = std::move(*opened);
  return check_own_folders(world_.ranks, world_.seat, world_.files, path_, world_.run);
}

Status StoreLevel::open() {
  Status opened = away_ || !is_at_work() ? Status() : store().status();
  if (!opened.ok() && speaks() && may_be_away(opened)) {
    note_away(opened);
    opened = {};
  }
  VARVE_TRY(agree(world_.ranks, opened));
  return share_away();
}

Status StoreLevel::reach(bool makes) {
  why_away_ = makes ? LevelStore::prepare(world_.files, spec_, own_path(), world_.reach).status() : Status();
  path_ = LevelStore::known_path(spec_, own_path());
  away_ = false;
  if (why_away_.ok()) why_away_ = store().status();
  away_ = !why_away_.ok();
  return why_away_;
}

void StoreLevel::close_if_idle() {
  if (!is_at_work()) store_.reset();
}

Result<const Store*> StoreLevel::store() {
  if (away_) return Status::io_error("the level cannot be reached", name());
  if (!store_) {
    VARVE_ASSIGN(store_, LevelStore::open(world_.files, spec_, path_, world_.reach, world_.clock));
  }
  return &store_->store();
}

void StoreLevel::note_away(const Status& why) {
  const bool told = !why_away_.ok();
  away_ = true;
  why_away_ = why;
  if (!told)
    world_.warnings.add(why.with_context(fmt::format("the run goes on without {} until it can be reached", name())));
}

/// Who speaks for the level says so to all. Collective.
Status StoreLevel::share_away() {
  std::array<uint64_t, 1> away = {away_ ? uint64_t{1} : uint64_t{0}};
  VARVE_TRY(world_.ranks.all_max(away));
  away_ = away[0] != 0;
  return {};
}

// A restart

void StoreLevel::complete_leftovers() {
  if (away_ || !speaks() || !store_) return;
  const Result<std::vector<SetName>> completed = complete_leftover_parts(store_->store(), world_.job);
  if (!completed.ok()) {
    world_.warnings.add(
        completed.status().with_context("a checkpoint that was nearly complete could not be completed"));
  }
}

Result<std::vector<uint64_t>> StoreLevel::list() {
  std::vector<uint64_t> steps;
  Status listed;
  if (!away_ && (is_of_node() || world_.ranks.rank() == 0)) {
    PatientReads reads(store_->store(), world_.clock);
    Result<std::vector<uint64_t>> found = reads([&] { return Catalog(store_->store()).steps(world_.job); });
    if (found.ok()) {
      steps = std::move(*found);
    } else if (may_be_away(found.status())) {
      note_away(found.status());
    } else {
      listed = found.status();
    }
  }
  VARVE_TRY(agree(world_.ranks, listed));
  VARVE_TRY(share_away());
  return steps;
}

/// Arenas that it finds damaged are condemned, so that the run, which will compute the same again, does not refer to
/// them: a whole arena for one pack, since marks are of arenas, and since a prune brings what is whole in one to
/// safety. What could not be read is not condemned, as it may be whole.
class StoreLevel::Image final : public RankImage {
 public:
  Image(StoreLevel& level, const Store& store) : level_(level), store_(store), stored_(store, level.world_.clock) {}
  ~Image() override { store_.drop_arena_cache(); }

  Status open(uint64_t step) {
    const LevelWorld& world = level_.world_;
    const uint32_t rank = world.ranks.rank(), rank_count = world.ranks.rank_count();
    PatientReads reads(store_, world.clock);
    VARVE_ASSIGN(const SetRecord record, reads([&] { return Catalog(store_).read({world.job, step}); }));
    return and_condemn(level_.is_of_node() ? stored_.open_of_node(record, rank, rank_count, world.seat.group_of_node)
                                           : stored_.open(record, rank, rank_count, world.seat.group));
  }
  const ImageTable& table() const override { return stored_.image(); }
  Status check() override {
    return and_condemn(stored_.verify(level_.world_.load_threads, level_.world_.memory_bytes));
  }
  Status read(uint64_t offset, MutableByteSpan into) override { return stored_.read(offset, into); }
  std::optional<SetOrigin> origin() const override {
    return level_.is_of_node() ? std::optional(stored_.origin()) : std::nullopt;
  }

 private:
  Status and_condemn(const Status& outcome) {
    level_.condemn_damaged(stored_.faults());
    return outcome;
  }

  StoreLevel& level_;
  const Store& store_;
  StoredImage stored_;
};

Result<std::unique_ptr<RankImage>> StoreLevel::image(const RestartCandidate& candidate) {
  const Result<const Store*> opened = store();
  if (!opened.ok()) {
    // Out of reach for this rank, it may be whole all the same.
    return opened.status().with_code(StatusCode::io_error);
  }
  auto image = std::make_unique<Image>(*this, **opened);
  VARVE_TRY(image->open(candidate.step));
  return std::unique_ptr<RankImage>(std::move(image));
}

void StoreLevel::condemn_damaged(const CopyFaults& faults) {
  unreadable_arenas_.insert(faults.unreadable.begin(), faults.unreadable.end());
  const Status condemned = condemn_arenas(store_->store(), faults.damaged);
  if (!condemned.ok()) {
    world_.warnings.add(condemned.with_context("what is damaged could not be marked, so that new sets may rest on it"));
  }
}

Result<bool> StoreLevel::never_were_whole(const std::vector<uint64_t>& steps) {
  // For each step, and for all stores.
  std::vector<uint64_t> there(steps.size() + 1, 1);
  uint64_t oldest_number = UINT64_MAX;
  if (speaks()) {
    for (size_t i = 0; i < steps.size(); ++i) {
      const Result<SetRecord> record = Catalog(store_->store()).read({world_.job, steps[i]});
      there[i] = record.status().code() == StatusCode::not_found ? 0 : 1;
      if (record.ok()) oldest_number = std::min(oldest_number, record->number);
    }
    there.back() = was_there_ ? 1 : 0;
  }
  there.push_back(oldest_number);
  VARVE_TRY(world_.ranks.all_min(there));
  const auto all_stores = there.end() - 2;
  return !steps.empty() && there.back() == 1 && *all_stores == 1 && std::count(there.begin(), all_stores, 1) == 0;
}

Status StoreLevel::mend(uint64_t step, std::span<StoreLevel* const> all) {
  if (!speaks()) return {};
  const SetName set{world_.job, step};
  VARVE_ASSIGN(const Store* const own, store());
  // A node's own set has only its ranks: what another store has under that name is not the same.
  if (is_of_node()) VARVE_TRY(Catalog(*own).read(set).status());
  std::vector<RepairSource> sources;
  for (StoreLevel* const other : all) {
    if (other == this) continue;
    const Result<const Store*> source = other->store();
    if (source.ok()) sources.push_back({other->name(), *source});
  }
  own->drop_arena_cache();
  VARVE_ASSIGN(const SetRepair repair, repair_set(*own, set, sources, {.thread_count = world_.load_threads}));
  own->drop_arena_cache();
  for (const MendedFrom& from : repair.mended) {
    const bool several = from.packs + from.nodes + from.records > 1;
    world_.warnings.add(
        Status::corrupt(fmt::format("{} of {} in {} were damaged, and taken from {}", several ? "parts" : "a part",
                                    set.to_string(), name(), from.source)));
  }
  return repair.lost;
}

/// The run computes a step anew of which the set is damaged or unreadable, and its sets are what follows from now on.
/// The old one stays, with what protects it, until the very moment at which the complete new one takes its place.
void StoreLevel::note_found(const Level& at, uint64_t step, Found found) {
  if (&at != this || found == Found::mended) return;
  if (is_of_node()) world_.sets.note_incomplete(step);
  const MutexLock lock(mutex_);
  replaceable_.insert(step);
}

void StoreLevel::accept(const NewSet& set) {
  if (!set.outcome.ok()) return;
  const MutexLock lock(mutex_);
  replaceable_.erase(set.step);
}

IfExists StoreLevel::policy_for(uint64_t step) const {
  const MutexLock lock(mutex_);
  return replaceable_.contains(step) ? IfExists::replace : IfExists::refuse;
}

// Its sets

Retention::Rules StoreLevel::rules(const std::string& job) const {
  Retention::Rules rules;
  rules.job = job;
  rules.keep = spec_.keep;
  if (is_of_node()) {
    // Of a checkpoint that lies on several nodes, only a run knows whether it is complete.
    rules.complete = [this, job](uint64_t step) {
      const Result<SetRecord> record = Catalog(*opened()).read({job, step});
      return record.ok() && record->has_all_ranks();
    };
  } else {
    // What was found to be damaged pushes nothing out.
    rules.complete = [this](uint64_t step) { return policy_for(step) == IfExists::refuse; };
  }
  return rules;
}

Status StoreLevel::retain(const std::string& job, const OwedSteps& owed, ProgressSink& progress) {
  if (away_) return {};
  Retention::Rules what_may_go = rules(job);
  what_may_go.owed = [&](uint64_t step, uint64_t) { return owed.contains(step); };
  Retention retention(std::move(what_may_go));
  VARVE_TRY(retention.apply(slowed(), progress));
  return retention.give_space_back(slowed(), progress, /*wait_seconds=*/0);
}

LevelProgress StoreLevel::progress(const RunNews& run) const {
  return {.level = name(), .newest = run.newest_saved, .waiting = run.saving, .last_error = run.last_error};
}

// For who looks from outside

Result<uint64_t> sets_ahead(const Store& store, const std::string& job, const std::vector<uint64_t>& there) {
  VARVE_ASSIGN(const std::vector<uint64_t> steps, Catalog(store).steps_by_age(job));
  const auto known = std::find_if(steps.rbegin(), steps.rend(),
                                  [&](uint64_t step) { return std::binary_search(there.begin(), there.end(), step); });
  return static_cast<uint64_t>(known - steps.rbegin());
}

/// Of the jobs that are here, and of those of the nearest store.
Result<LevelContents> StoreLevel::contents(const Store* nearest) {
  VARVE_TRY(why_away_);
  const Store& own = store_->store();
  VARVE_ASSIGN(std::vector<std::string> jobs, Catalog(own).jobs());
  if (nearest != nullptr) {
    VARVE_ASSIGN(const std::vector<std::string> there, Catalog(*nearest).jobs());
    jobs.insert(jobs.end(), there.begin(), there.end());
  }
  std::sort(jobs.begin(), jobs.end());
  jobs.erase(std::unique(jobs.begin(), jobs.end()), jobs.end());
  LevelContents contents;
  for (std::string& job : jobs) {
    LevelContents::Job& entry = contents.jobs.emplace_back();
    VARVE_ASSIGN(const std::vector<uint64_t> steps, Catalog(own).steps(job));
    entry.sets = steps.size();
    if (!steps.empty()) entry.newest = steps.back();
    if (nearest != nullptr) {
      VARVE_ASSIGN(entry.behind, sets_ahead(*nearest, job, steps));
    }
    entry.job = std::move(job);
  }
  VARVE_ASSIGN(contents.bytes, own.arena_bytes());
  const Result<uint64_t> free = own.backend().free_bytes(own.arenas_path());
  if (free.ok()) contents.free_bytes = *free;
  return contents;
}

// The kinds

namespace {
std::unique_ptr<Level> make_store_level(const LevelSpec& spec, LevelWorld& world, const Levels& before) {
  if (before.stores().empty()) return std::make_unique<StoreLevel>(spec, world, /*is_nearest=*/true);
  return std::make_unique<FartherLevel>(spec, world, before);
}

/// Of kinds whose place open_location() takes as it is.
Status take_location(LevelSpec& level, std::string_view word) {
  VARVE_TRY(take_place(level, word));
  return Location::parse(name_with_place(level)).status();
}
}  // namespace

constinit const LevelKind kNodeLevel{
    .form = "local:PATH",
    .words = {"local:"},
    .position = LevelKind::Position::of_node,
    .position_rule = "there is one local level, before all that is farther away",
    .take = take_place,
    .name = name_with_place,
    .make = make_store_level,
};
constinit const LevelKind kFolderLevel{.form = "dir:PATH",
                                       .words = {kFolderPrefix},
                                       .take = take_location,
                                       .name = name_with_place,
                                       .make = make_store_level};
/// Of stores that are reached by an address.
constexpr LevelKind kind_by_address(std::string_view form, std::string_view word) {
  return {.form = form,
          .words = {word},
          .on_servers = true,
          .take = take_location,
          .name = name_with_place,
          .make = make_store_level};
}
constinit const LevelKind kTcpLevel = kind_by_address("tcp://HOST:PORT", kTcpPrefix);
constinit const LevelKind kUnixLevel = kind_by_address("unix:PATH", kUnixPrefix);
constinit const LevelKind kBucketLevel = kind_by_address("s3://BUCKET/PREFIX", kBucketPrefix);

}  // namespace varve
