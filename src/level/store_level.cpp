#include "level/store_level.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>

#include "comm/agreement.h"
#include "comm/gather.h"
#include "core/bytes.h"
#include "core/guarded.h"
#include "core/patience.h"
#include "core/status_codec.h"
#include "engine/repair.h"
#include "level/farther_level.h"
#include "level/file_parts.h"
#include "level/levels.h"
#include "level/node_parts.h"
#include "level/reshaped_image.h"
#include "level/stand_ins.h"
#include "level/stored_image.h"
#include "service/location.h"
#include "store/catalog.h"

namespace varve {

namespace {
/// More threads of a rank than it has processors, so that some packs are read while others are decoded.
constexpr size_t kReadsAhead = 2;
}  // namespace

/// Arenas that it finds damaged are condemned, so that the run, which will compute the same again, does not refer to
/// them: a whole arena for one pack, since marks are of arenas, and since a prune brings what is whole in one to
/// safety. What could not be read is not condemned, as it may be whole.
class StoreLevel::Image final : public RankImage {
 public:
  Image(StoreLevel& level, const Store& store) : level_(level), store_(store), stored_(store, level.world_.clock) {}
  ~Image() override { store_.drop_arena_cache(); }

  /// How many ranks the run had that made the set.
  Result<uint64_t> rank_count_of(const SetRecord& record) {
    if (!level_.spec_.is_of_node()) return record.rank_count;
    VARVE_TRY(and_condemn(stored_.find_origin(record, level_.world_.seat.group_of_node)));
    return stored_.origin().rank_count;
  }
  /// After that.
  Status open(const SetRecord& record) {
    const LevelWorld& world = level_.world_;
    const uint32_t group = level_.spec_.is_of_node() ? world.seat.group_of_node : world.seat.group;
    return and_condemn(stored_.open(record, world.ranks.rank(), group));
  }
  const ImageTable& table() const override { return stored_.image(); }
  Status load(ImageTarget& target) override {
    const LevelWorld& world = level_.world_;
    return and_condemn(stored_.load(world.work.load_threads + kReadsAhead, target, world.node_packs));
  }
  std::optional<SetOrigin> origin() const override {
    return level_.spec_.is_of_node() ? std::optional(stored_.origin()) : std::nullopt;
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

/// What ranks have saved in a set. Each rank's image has readers of its own.
class StoreLevel::Parts final : public HeldParts {
 public:
  using Images = std::map<uint32_t, std::unique_ptr<StoredImage>>;  // by rank

  Parts(StoreLevel& level, const Store& store, uint32_t rank_count, Images images, uint64_t number = 0)
      : level_(level), store_(store), rank_count_(rank_count), number_(number), images_(std::move(images)) {}
  ~Parts() override { store_.drop_arena_cache(); }

  /// What a stand-in has of other nodes' ranks.
  void add(std::unique_ptr<Store> stand_in, Images images, uint64_t number) {
    number_ = std::max(number_, number);
    stand_ins_.push_back(std::move(stand_in));
    for (auto& [rank, image] : images) {
      if (images_.emplace(rank, std::move(image)).second) in_stand_ins_.insert(rank);
    }
  }

  uint32_t rank_count() const override { return rank_count_; }
  std::vector<uint32_t> ranks() const override {
    std::vector<uint32_t> ranks;
    for (const auto& [rank, image] : images_) ranks.push_back(rank);
    return ranks;
  }
  uint64_t number() const override { return number_; }
  ImageTable table(uint32_t rank) const override { return images_.at(rank)->image(); }
  std::optional<SetOrigin> origin() const override {
    return level_.spec_.is_of_node() ? std::optional(images_.begin()->second->origin()) : std::nullopt;
  }
  Status load(std::span<const PartLoad> loads, size_t thread_count) override {
    std::vector<StoredImage::Load> of_images;
    for (const PartLoad& load : loads) of_images.push_back({images_.at(load.rank).get(), load.wanted, load.target});
    return StoredImage::load_all(of_images, thread_count, level_.world_.node_packs);
  }
  void note_faults() override {
    for (const auto& [rank, image] : images_) {
      // Nothing new rests on a stand-in.
      if (!in_stand_ins_.contains(rank)) level_.condemn_damaged(image->faults());
    }
  }

 private:
  Status read_part(const PartRead& read) override {
    StoredImage& image = *images_.at(read.rank);
    const Status outcome = image.read(read.offset, read.into);
    if (!outcome.ok()) image.find_faults();
    return outcome;
  }

  StoreLevel& level_;
  const Store& store_;
  const uint32_t rank_count_;
  uint64_t number_;
  std::vector<std::unique_ptr<Store>> stand_ins_;
  Images images_;
  std::set<uint32_t> in_stand_ins_;  ///< ranks
};

/// What all ranks have saved in a set of a store that is shared: the tables of all, and of images those that are
/// wanted, opened when they are.
class StoreLevel::SharedParts final : public HeldParts {
 public:
  struct Part {
    uint32_t group = 0;                    ///< ordinal in the set
    size_t table = 0;                      ///< ordinal in the tables
    std::unique_ptr<StoredImage> image{};  ///< null: nothing of it has been wanted yet
  };

  SharedParts(StoreLevel& level, const Store& store, SetRecord record, AlikeTables tables, std::vector<Part> parts)
      : level_(level),
        store_(store),
        record_(std::move(record)),
        tables_(std::move(tables)),
        parts_(std::move(parts)) {}
  ~SharedParts() override { store_.drop_arena_cache(); }

  uint32_t rank_count() const override { return static_cast<uint32_t>(parts_.size()); }
  std::vector<uint32_t> ranks() const override {
    std::vector<uint32_t> all(parts_.size());
    std::iota(all.begin(), all.end(), 0u);
    return all;
  }
  ImageTable table(uint32_t rank) const override { return tables_.at(parts_[rank].table); }
  std::optional<bool> is_at_hand(uint32_t rank) const override {
    const Communicator& ranks = level_.world_.ranks;
    return reader_of(parts_[rank].group, record_, ranks) == ranks.rank();
  }
  /// Who reads the tables of a group for all: often who wants the cells that its ranks had.
  static uint32_t reader_of(uint64_t group, const SetRecord& record, const Communicator& ranks) {
    return static_cast<uint32_t>(group * ranks.rank_count() / record.groups.size());
  }
  Status will_load(uint32_t rank) override { return image_of(rank).status(); }
  Status load(std::span<const PartLoad> loads, size_t thread_count) override {
    std::vector<StoredImage::Load> of_images;
    for (const PartLoad& load : loads) {
      VARVE_ASSIGN(StoredImage* const image, image_of(load.rank));
      of_images.push_back({image, load.wanted, load.target});
    }
    return StoredImage::load_all(of_images, thread_count, level_.world_.node_packs);
  }
  void note_faults() override {
    for (const Part& part : parts_) {
      if (part.image) level_.condemn_damaged(part.image->faults());
    }
  }

 private:
  /// With those that are described beside it.
  Result<StoredImage*> image_of(uint32_t rank) {
    if (parts_[rank].image == nullptr) {
      const uint32_t group = parts_[rank].group;
      ImageTable known;
      VARVE_ASSIGN(auto found,
                   StoredImage::open_group(store_, level_.world_.clock, record_, group, [&](uint32_t other) {
                     known = table(other);
                     return &known;
                   }));
      for (auto& [other, image] : found) {
        if (parts_[other].group == group && !parts_[other].image) parts_[other].image = std::move(image);
      }
    }
    if (parts_[rank].image != nullptr) return parts_[rank].image.get();
    return Status::corrupt(fmt::format("a part of the set is not where it was: that of rank {}", rank),
                           record_.name.to_string());
  }
  Status read_part(const PartRead& read) override {
    VARVE_ASSIGN(StoredImage* const image, image_of(read.rank));
    const Status outcome = image->read(read.offset, read.into);
    if (!outcome.ok()) image->find_faults();
    return outcome;
  }

  StoreLevel& level_;
  const Store& store_;
  const SetRecord record_;
  const AlikeTables tables_;
  std::vector<Part> parts_;  ///< by rank
};

Result<std::unique_ptr<RankImage>> StoreLevel::image(const RestartCandidate& candidate, const RankWish& wish) {
  const size_t threads = world_.work.load_threads + kReadsAhead;
  if (spec_.is_of_node()) {
    return image_over_nodes(
        world_, wish, run_guarded([&] { return own_image(own_record(candidate.step), wish); }),
        [&] { return parts_of_node(candidate.step); }, candidate.number, threads);
  }
  const Result<SetRecord> record = told_record(candidate.step);
  // It was copied from a node's own store.
  if (record.ok() && !record->has_all_ranks()) {
    return Status::corrupt(
        fmt::format("it is the share of one node alone, {} of {} ranks", record->rank_count, record->run_ranks),
        record->name.to_string());
  }
  Result<std::unique_ptr<RankImage>> image = shared_image(record, wish);
  if (!record.ok() || image.status().code() != StatusCode::invalid_argument) return image;
  // No session made it, or it does not fit.
  VARVE_ASSIGN(std::unique_ptr<FileParts> files, files_of(*record, &wish));
  if (!files) return image;
  VARVE_TRY(files->fit(wish));
  return ReshapedImage::plan(wish, std::move(files), threads);
}

Result<std::unique_ptr<RankImage>> StoreLevel::shared_image(const Result<SetRecord>& record, const RankWish& wish) {
  Result<std::unique_ptr<RankImage>> own = run_guarded([&] { return own_image(record, wish); });
  const bool needs_parts = own.ok() && !*own;
  std::array<uint64_t, 1> any_needs_them = {needs_parts ? uint64_t{1} : uint64_t{0}};
  VARVE_TRY(world_.ranks.all_max(any_needs_them));
  if (any_needs_them[0] == 0) return own;
  Result<std::unique_ptr<SharedParts>> parts = shared_parts(record);
  if (!needs_parts) return own;
  VARVE_TRY(parts.status());
  return ReshapedImage::plan(wish, std::move(*parts), world_.work.load_threads + kReadsAhead);
}

Result<std::unique_ptr<StoreLevel::SharedParts>> StoreLevel::shared_parts(const Result<SetRecord>& of_set) {
  Communicator& ranks = world_.ranks;
  ByteVector mine;
  std::map<uint32_t, std::unique_ptr<StoredImage>> opened;  // here, by rank
  const Status read = run_guarded([&]() -> Status {
    VARVE_ASSIGN(const Store* const store, access_.store());
    VARVE_TRY(of_set.status());
    ByteWriter out(mine);
    for (uint32_t group = 0; group < of_set->groups.size(); ++group) {
      if (SharedParts::reader_of(group, *of_set, ranks) != ranks.rank()) continue;
      VARVE_ASSIGN(auto images, StoredImage::open_group(*store, world_.clock, *of_set, group));
      for (auto& [rank, image] : images) {
        out.varint(group);
        tell_table(out, rank, image->image());
        opened[rank] = std::move(image);
      }
    }
    return {};
  });
  VARVE_ASSIGN(const std::vector<RankFailure> failures, gather_failures(ranks, read));
  VARVE_TRY(read);
  if (!failures.empty()) return failures.front().what;
  const SetRecord& record = *of_set;
  AlikeTables tables;
  std::vector<std::pair<uint64_t, SharedParts::Part>> found;  // by rank
  const auto note = [&](uint32_t, ByteSpan told) -> Status {
    ByteReader in(told);
    while (!in.at_end()) {
      VARVE_ASSIGN(const uint64_t group, in.varint());
      VARVE_ASSIGN(const ToldTable table, told_table(in));
      if (table.rank >= record.rank_count || group >= record.groups.size())
        return Status::corrupt("what ranks say of a set makes no sense", record.name.to_string());
      found.emplace_back(table.rank, SharedParts::Part{.group = static_cast<uint32_t>(group), .table = tables.size()});
      VARVE_TRY(tables.add(table));
    }
    return {};
  };
  VARVE_TRY(gather_told(ranks, mine, note));
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  const auto is_again = [](const auto& a, const auto& b) { return a.first == b.first; };
  found.erase(std::unique(found.begin(), found.end(), is_again), found.end());
  if (found.size() != record.rank_count || found.empty()) {
    return Status::invalid_argument(
        fmt::format("the set has {} of {} ranks: it was not made by a session", found.size(), record.rank_count),
        record.name.to_string(), {Remedy::take_another_job, record.name.to_string()});
  }
  std::vector<SharedParts::Part> parts;
  for (auto& [rank, part] : found) parts.push_back(std::move(part));
  for (auto& [rank, image] : opened) {
    if (SharedParts::reader_of(parts[rank].group, record, ranks) == ranks.rank()) parts[rank].image = std::move(image);
  }
  return std::make_unique<SharedParts>(*this, *access_.opened(), record, std::move(tables), std::move(parts));
}

/// Of a set that was saved from a folder; null: a session made it.
Result<std::unique_ptr<FileParts>> StoreLevel::files_of(const SetRecord& record, const RankWish* wish) {
  VARVE_ASSIGN(const Store* const store, access_.store());
  return FileParts::open(
      *store, world_.clock, record, [this](const CopyFaults& faults) { condemn_damaged(faults); }, wish,
      world_.work.load_threads + kReadsAhead);
}

Result<SetRecord> StoreLevel::read_record(const Store& store, uint64_t step) const {
  PatientReads reads(store, world_.clock);
  return reads([&] { return Catalog(store).read({world_.job, step}); });
}

Result<SetRecord> StoreLevel::own_record(uint64_t step) {
  VARVE_ASSIGN(const Store* const store, access_.store());
  return read_record(*store, step);
}

Result<SetRecord> StoreLevel::told_record(uint64_t step) {
  const Result<const Store*> store = run_guarded([this] { return access_.store(); });
  VARVE_ASSIGN(const ByteVector told, told_by_first(world_.ranks, [&]() -> Result<ByteVector> {
                 // Out of reach for this rank, it may be whole all the same.
                 if (!store.ok()) return store.status().with_code(StatusCode::io_error);
                 VARVE_ASSIGN(const SetRecord record, read_record(**store, step));
                 return encode_set_record(record, (*store)->score());
               }));
  VARVE_TRY(store.status());
  return run_guarded([&] { return decode_set_record(told, (*store)->score()); });
}

/// The image of the rank of this number, if the set is of as many ranks, and divided likewise; null if it is not, or if
/// this node's store has none of it.
Result<std::unique_ptr<RankImage>> StoreLevel::own_image(const Result<SetRecord>& record, const RankWish& wish) {
  const Result<const Store*> opened = access_.store();
  // Out of reach for this rank, it may be whole all the same.
  if (!opened.ok()) return opened.status().with_code(StatusCode::io_error);
  const auto is_elsewhere = [this](const Status& status) {
    return spec_.is_of_node() && status.code() == StatusCode::not_found;
  };
  if (is_elsewhere(record.status())) return std::unique_ptr<RankImage>();
  VARVE_TRY(record.status());
  auto image = std::make_unique<Image>(*this, **opened);
  VARVE_ASSIGN(const uint64_t rank_count, image->rank_count_of(*record));
  if (rank_count != wish.rank_count) return std::unique_ptr<RankImage>();
  const Status found = image->open(*record);
  if (is_elsewhere(found)) return std::unique_ptr<RankImage>();
  VARVE_TRY(found);
  if (!is_same_part(wish, wish.rank_count, image->table())) return std::unique_ptr<RankImage>();
  return std::unique_ptr<RankImage>(std::move(image));
}

namespace {
/// Which run made them, and how many ranks it had.
const SetOrigin& origin_of(const std::map<uint32_t, std::unique_ptr<StoredImage>>& images) {
  return images.begin()->second->origin();
}
}  // namespace

/// What this node's store has of a set, and its stand-ins; null: nothing.
Result<std::unique_ptr<HeldParts>> StoreLevel::parts_of_node(uint64_t step) {
  VARVE_ASSIGN(const Store* const own, access_.store());
  std::unique_ptr<Parts> parts;
  VARVE_ASSIGN(NodeImages here, images_of_node(*own, step));
  if (!here.images.empty()) {
    const uint32_t rank_count = origin_of(here.images).rank_count;
    parts = std::make_unique<Parts>(*this, *own, rank_count, std::move(here.images), here.number);
  }
  VARVE_ASSIGN(const std::vector<std::string> stand_ins, list_stand_ins(world_.files, access_.own_path(), world_.job));
  Patience patience(world_.clock);
  for (const std::string& path : stand_ins) {
    Result<std::unique_ptr<Store>> store = patience([&] { return Store::open(world_.files, path); }, [] {});
    // Half of it was made when a run ended.
    if (store.status().code() == StatusCode::not_found || store.status().code() == StatusCode::corrupt) continue;
    if (!store.ok()) return store.status().with_code(StatusCode::io_error);  // it may be whole all the same
    VARVE_ASSIGN(NodeImages more, images_of_node(**store, step));
    if (more.images.empty() || (parts && parts->origin() != origin_of(more.images))) continue;
    if (!parts) parts = std::make_unique<Parts>(*this, *own, origin_of(more.images).rank_count, Parts::Images());
    parts->add(std::move(*store), std::move(more.images), more.number);
  }
  return std::unique_ptr<HeldParts>(std::move(parts));
}

/// What a store of one node has of a set; none, if it has not got it.
Result<StoreLevel::NodeImages> StoreLevel::images_of_node(const Store& store, uint64_t step) const {
  const Result<SetRecord> record = read_record(store, step);
  if (record.status().code() == StatusCode::not_found) return NodeImages();
  VARVE_TRY(record.status());
  VARVE_ASSIGN(auto images, StoredImage::open_present(store, world_.clock, *record, /*of_node=*/true));
  return NodeImages{std::move(images), record->number};
}

Result<std::map<uint32_t, ImageTable>> StoreLevel::tables(const RestartCandidate& candidate) {
  std::map<uint32_t, ImageTable> tables;
  if (spec_.is_of_node() ? !world_.speaks_for_node() : world_.ranks.rank() != 0) return tables;
  VARVE_ASSIGN(const Store* const store, access_.store());
  VARVE_ASSIGN(const SetRecord record, read_record(*store, candidate.step));
  VARVE_ASSIGN(const auto images, StoredImage::open_present(*store, world_.clock, record, spec_.is_of_node()));
  for (const auto& [rank, image] : images) tables.emplace(rank, image->image());
  if (!tables.empty() || spec_.is_of_node()) return tables;
  VARVE_ASSIGN(const std::unique_ptr<FileParts> files, files_of(record, nullptr));
  return files ? files->tables() : tables;
}

void StoreLevel::condemn_damaged(const CopyFaults& faults) {
  unreadable_arenas_.insert(faults.unreadable.begin(), faults.unreadable.end());
  const Status condemned = condemn_arenas(*access_.opened(), faults.damaged);
  if (!condemned.ok()) {
    world_.warnings.add(condemned.with_context("what is damaged could not be marked, so that new sets may rest on it"));
  }
}

Result<bool> StoreLevel::mend(uint64_t step, std::span<StoreLevel* const> all) {
  if (!access_.speaks()) return false;
  const SetName set{world_.job, step};
  VARVE_ASSIGN(const Store* const own, access_.store());
  // A node's own set has only its ranks: what another store has under that name is not the same.
  if (spec_.is_of_node()) VARVE_TRY(Catalog(*own).read(set).status());
  std::vector<RepairSource> sources;
  for (StoreLevel* const other : all) {
    if (other == this) continue;
    const Result<const Store*> source = other->access_.store();
    if (source.ok()) sources.push_back({other->name(), *source});
  }
  own->drop_arena_cache();
  VARVE_ASSIGN(const SetRepair repair, repair_set(*own, set, sources, {.thread_count = world_.work.load_threads}));
  own->drop_arena_cache();
  for (const MendedFrom& from : repair.mended) {
    const bool several = from.packs + from.nodes + from.records > 1;
    world_.warnings.add(
        Status::corrupt(fmt::format("{} of {} in {} were damaged, and taken from {}", several ? "parts" : "a part",
                                    set.to_string(), name(), from.source)));
  }
  VARVE_TRY(repair.lost);
  return !repair.mended.empty();
}

/// The run computes a step anew of which the set is damaged or unreadable, or behind which it has gone back, and its
/// sets are what follows from now on. The old one stays, with what protects it, until the very moment at which the
/// complete new one takes its place.
void StoreLevel::note_found(const Level& at, uint64_t step, Found found) {
  if (&at != this || found == Found::mended) return;
  const bool may_be_whole = found == Found::left_behind || found == Found::on_course;
  if (spec_.is_of_node() && !may_be_whole) world_.sets.note_incomplete(step);
  const MutexLock lock(mutex_);
  if (found == Found::on_course) {
    left_behind_.erase(step);
  } else {
    (may_be_whole ? left_behind_ : not_whole_).insert(step);
  }
}

void StoreLevel::accept(const NewSet& set) {
  if (set.outcome.ok()) note_replaced(set.step);
}

void StoreLevel::note_replaced(uint64_t step) {
  const MutexLock lock(mutex_);
  not_whole_.erase(step);
  left_behind_.erase(step);
}

Status StoreLevel::ask(const Store& store) {
  VARVE_ASSIGN(const uint64_t next, first_number_of_run(store, world_.job));
  if (next > world_.unseen_from) {
    VARVE_ASSIGN(const std::vector<uint64_t> steps, Catalog(store).steps(world_.job));
    for (const uint64_t step : steps) {
      const Result<SetRecord> record = Catalog(store).read({world_.job, step});
      const StatusCode code = record.status().code();
      if (code == StatusCode::not_found || code == StatusCode::corrupt) continue;
      VARVE_TRY(record.status());
      const bool is_unseen = record->number >= world_.unseen_from && record->number < world_.unseen_to;
      if (is_unseen && record->run != world_.run) note_found(*this, step, Found::left_behind);
    }
  }
  next_number_ = next;
  is_unasked_ = false;
  return {};
}

IfExists StoreLevel::policy_for(uint64_t step) const {
  const MutexLock lock(mutex_);
  return not_whole_.contains(step) || left_behind_.contains(step) ? IfExists::replace : IfExists::refuse;
}

// Its sets

Retention::Rules StoreLevel::rules(const std::string& job) const {
  Retention::Rules rules;
  rules.job = job;
  rules.keep = spec_.keep;
  if (spec_.is_of_node()) {
    // Of a checkpoint that lies on several nodes, only a run knows whether it is complete.
    rules.complete = [this, job](uint64_t step) {
      const Result<SetRecord> record = Catalog(*access_.opened()).read({job, step});
      return record.ok() && record->has_all_ranks();
    };
  }
  // What the program may still reject makes nothing go either: it would fall back to that.
  rules.replaceable = [this](uint64_t step) { return is_made_anew(step) || world_.sets.is_on_trial(step); };
  return rules;
}

Status StoreLevel::retain(const std::string& job, const OwedSteps& owed, ProgressSink& progress) {
  if (access_.is_away()) return {};
  Retention::Rules what_may_go = rules(job);
  what_may_go.owed = [&](uint64_t step, uint64_t number) {
    return access_.is_nearest() ? owed.may_contain(step, number) : owed.contains(step);
  };
  Retention retention(std::move(what_may_go));
  VARVE_TRY(retention.apply(access_.slowed(), progress));
  return retention.give_space_back(access_.slowed(), progress, /*wait_seconds=*/0);
}

LevelProgress StoreLevel::progress(const RunNews& run) const {
  return {.level = name(), .newest = run.newest_saved, .waiting = run.saving, .last_error = run.last_error};
}

// For who looks from outside

Result<uint64_t> sets_ahead(const Store& store, const std::string& job,
                            const std::function<bool(uint64_t step)>& is_there) {
  VARVE_ASSIGN(const std::vector<uint64_t> steps, Catalog(store).steps_by_age(job));
  return static_cast<uint64_t>(std::find_if(steps.rbegin(), steps.rend(), is_there) - steps.rbegin());
}

namespace {
/// Whether a store has the very set that the nearest one has under this name: or another one that has only its step.
bool has_same_set(const Store& there, const Store& nearest, const SetName& name) {
  const Result<SetRecord> copy = Catalog(there).read(name);
  if (!copy.ok() || &there == &nearest) return copy.ok();
  const Result<SetRecord> record = Catalog(nearest).read(name);
  return record.ok() && has_set_of(there, *copy, nearest, *record);
}
}  // namespace

/// Of the jobs that are here, and of those of the nearest store.
Result<LevelContents> StoreLevel::contents(const Store* nearest) {
  VARVE_TRY(access_.why_away());
  const Store& own = *access_.opened();
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
      const auto is_here = [&](uint64_t step) { return has_same_set(own, *nearest, {job, step}); };
      VARVE_ASSIGN(entry.behind, sets_ahead(*nearest, job, is_here));
    }
    entry.job = std::move(job);
  }
  VARVE_ASSIGN(contents.bytes, arena_bytes(own));
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
