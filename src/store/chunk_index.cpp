#include "store/chunk_index.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/thread_pool.h"
#include "store/index_run.h"

namespace varve {

namespace {
constexpr size_t kRunsMax = 8;

bool is_of_arenas(const RunScope& scope) { return scope.kind != RunScope::Kind::gone; }

/// How many of `arenas` are in `set`.
size_t count_in(const std::set<ArenaId>& set, const std::vector<ArenaId>& arenas) {
  return static_cast<size_t>(
      std::count_if(arenas.begin(), arenas.end(), [&](const ArenaId& id) { return set.contains(id); }));
}

/// So much of it is about arenas that are gone that it is worth writing anew.
bool mostly(const std::set<ArenaId>& gone, const RunTable& table) {
  const size_t count = count_in(gone, table.arenas);
  return count > 0 && 2 * count >= table.arenas.size();
}
}  // namespace

bool IndexRuns::covers(const RunTable& table) const { return table.scope == RunScope::all() || table.scope == scope(); }

RunScope IndexRuns::scope() const {
  if (said_scope_) return *said_scope_;
  RunScope newest;
  for (const Run& run : runs_) {
    const RunScope& scope = run.about().scope;
    if (scope.kind == RunScope::Kind::place && scope.places > newest.places) newest = scope;
  }
  return newest;
}

std::set<ArenaId> IndexRuns::covered() const {
  std::set<ArenaId> covered;
  for (const Run& run : runs_) {
    if (is_of_arenas(run.about().scope) && covers(run.about()))
      covered.insert(run.about().arenas.begin(), run.about().arenas.end());
  }
  return covered;
}

std::set<ArenaId> IndexRuns::named() const {
  std::set<ArenaId> named;
  for (const Run& run : runs_) {
    if (is_of_arenas(run.about().scope)) named.insert(run.about().arenas.begin(), run.about().arenas.end());
  }
  return named;
}

std::set<ArenaId> IndexRuns::said_gone() const {
  std::set<ArenaId> gone;
  for (const Run& run : runs_) {
    if (!is_of_arenas(run.about().scope)) gone.insert(run.about().arenas.begin(), run.about().arenas.end());
  }
  return gone;
}

bool IndexRuns::merge_wanted() const {
  const std::set<ArenaId> gone = said_gone();
  size_t runs = 0;
  for (const Run& run : runs_) {
    if (!is_of_arenas(run.about().scope) || !covers(run.about())) continue;
    ++runs;
    if (mostly(gone, run.about())) return true;
  }
  return runs > kRunsMax;
}

std::vector<std::string> IndexRuns::told_gone() const {
  std::vector<std::string> paths;
  for (const Run& run : runs_) {
    if (!is_of_arenas(run.about().scope)) paths.push_back(run.path);
  }
  return paths;
}

std::vector<IndexRuns::Run> IndexRuns::take_unreadable() {
  const auto is_readable = [](const Run& run) { return !run.opened || run.opened->failure().ok(); };
  const auto first = std::stable_partition(runs_.begin(), runs_.end(), is_readable);
  std::vector<Run> unreadable(std::make_move_iterator(first), std::make_move_iterator(runs_.end()));
  runs_.erase(first, runs_.end());
  return unreadable;
}

std::vector<IndexRuns::Run> IndexRuns::take_merged(const std::set<ArenaId>& gone) {
  std::vector<Run> fitting, others;
  for (const Run& run : runs_) {
    (is_of_arenas(run.about().scope) && covers(run.about()) ? fitting : others).push_back(run);
  }
  std::sort(fitting.begin(), fitting.end(),
            [](const Run& a, const Run& b) { return a.about().entry_count < b.about().entry_count; });
  const size_t smaller = fitting.size() > kRunsMax ? fitting.size() / 2 + 1 : 0;
  std::vector<Run> merged;
  for (size_t i = 0; i < fitting.size(); ++i)
    (i < smaller || mostly(gone, fitting[i].about()) ? merged : others).push_back(fitting[i]);
  runs_ = std::move(others);
  return merged;
}

void IndexRuns::prefetch(uint64_t prefix) const {
  for (const Run& run : runs_) {
    if (run.opened) run.opened->prefetch(prefix);
  }
}

void IndexRuns::find(uint64_t prefix, std::vector<ChunkCandidate>& candidates) const {
  for (const Run& run : runs_) {
    if (run.opened) run.opened->find(prefix, candidates);
  }
}

uint64_t IndexRuns::entry_count() const {
  uint64_t sum = 0;
  for (const Run& run : runs_) sum += run.about().entry_count;
  return sum;
}

IndexFolder::IndexFolder(Backend& backend, std::string path, const UniqueId& store, Options options)
    : backend_(&backend),
      path_(std::move(path)),
      store_(store),
      options_(options),
      budget_(std::make_shared<PageBudget>(options.held_bytes)),
      runs_(options.scope) {}

Status IndexFolder::list(size_t count_max) {
  listed_.clear();
  Result<std::vector<DirectoryEntry>> entries = backend_->list(path_);
  if (entries.status().code() == StatusCode::not_found) return backend_->make_folder(path_);
  VARVE_TRY(entries.status());
  for (const DirectoryEntry& entry : *entries) {
    if (entry.name.ends_with(".run")) listed_.push_back(join_path(path_, entry.name));
  }
  std::sort(listed_.begin(), listed_.end());
  listed_.resize(std::min(listed_.size(), count_max));
  return {};
}

Result<IndexRuns::Run> IndexFolder::open(const std::string& path) const {
  IndexRuns::Run run{.path = path};
  if (options_.use == Use::cover) {
    VARVE_ASSIGN(run.table, read_run_table(*backend_, path, store_));
  } else {
    VARVE_ASSIGN(run.opened, ChunkIndexRun::open(*backend_, path, store_, budget_));
  }
  return run;
}

Status IndexFolder::load(const std::set<ArenaId>* present) {
  runs_.clear();
  overtaken_ = false;
  std::vector<Result<IndexRuns::Run>> opened(listed_.size(), IndexRuns::Run{});
  VARVE_TRY(parallel_for(listed_.size(), backend_->operations_at_once(), [&](size_t i) -> Status {
    opened[i] = open(listed_[i]);
    return {};
  }));
  for (size_t i = 0; i < listed_.size(); ++i) {
    const std::string& path = listed_[i];
    Result<IndexRuns::Run>& run = opened[i];
    if (run.status().code() == StatusCode::not_found) {
      overtaken_ = true;
    } else if (!run.ok()) {
      // A server that cannot be reached has not lost its index.
      if (options_.use == Use::cover && run.status().code() != StatusCode::corrupt) return run.status();
      discard(path, run.status());
    } else if (worthless(run->about(), present)) {
      backend_->remove(path).ignore("it is of no use to anybody");
    } else {
      runs_.add(*std::move(run));
    }
  }
  return {};
}

void IndexFolder::discard(const std::string& path, const Status& why) {
  healed_.push_back(why);
  // What may not be opened by this user, or not now, may be of use to others.
  if (why.code() == StatusCode::corrupt || why.code() == StatusCode::io_error)
    backend_->remove(path).ignore("it is rebuilt under another name");
}

bool IndexFolder::worthless(const RunTable& table, const std::set<ArenaId>* present) const {
  if (options_.use == Use::cover && table.scope.kind == RunScope::Kind::gone) return false;  // see tell_gone()
  const bool of_fewer_places = options_.scope && options_.scope->kind == RunScope::Kind::place &&
                               table.scope.kind == RunScope::Kind::place &&
                               table.scope.places <= options_.scope->places && table.scope != *options_.scope;
  return of_fewer_places || (present != nullptr && count_in(*present, table.arenas) == 0);
}

Result<std::string> IndexFolder::new_path() const {
  VARVE_ASSIGN(const UniqueId name, UniqueId::random());
  return join_path(path_, name.hex() + ".run");
}

Result<IndexRuns::Run> IndexFolder::write(std::vector<ArenaId> arenas, uint64_t entry_count, const NextEntry& next) {
  for (const IndexRuns::Run& run : runs_.take_unreadable()) discard(run.path, run.opened->failure());
  VARVE_ASSIGN(const std::string path, new_path());
  IndexRuns::Run run{path, {std::move(arenas), runs_.scope(), entry_count}, nullptr};
  VARVE_TRY(write_index_run(*backend_, path, store_, run.table, next));
  return run;
}

Status IndexFolder::leave(std::vector<ArenaId> arenas, uint64_t entry_count, const NextEntry& next) {
  const Status written = write(std::move(arenas), entry_count, next).status();
  // A prune took it for a leftover just now, as its writer has committed: what it says is found next time.
  return written.code() == StatusCode::not_found ? Status() : written;
}

Status IndexFolder::add(std::vector<ArenaId> arenas, uint64_t entry_count, const NextEntry& next) {
  Result<IndexRuns::Run> added = write(std::move(arenas), entry_count, next);
  if (added.status().code() == StatusCode::not_found) return {};
  VARVE_TRY(added.status());
  if (options_.use == Use::look_up) {
    added = open(added->path);
    // Merged by another save just now, removed with its arenas by a prune, or not to be opened: what it knows is found
    // next time.
    if (!added.ok()) return {};
  }
  runs_.add(*std::move(added));
  return {};
}

Status IndexFolder::tell_gone(const std::set<ArenaId>& present) {
  std::set<ArenaId> gone;
  for (const ArenaId& id : runs_.named()) {
    if (!present.contains(id)) gone.insert(id);
  }
  const std::vector<std::string> before = runs_.told_gone();
  if (gone == runs_.said_gone() && before.size() <= 1) return {};
  if (!gone.empty()) {
    VARVE_ASSIGN(const std::string path, new_path());
    const RunTable table{{gone.begin(), gone.end()}, RunScope::gone(), 0};
    VARVE_TRY(write_index_run(*backend_, path, store_, table, [] { return ChunkIndexEntry(); }));
  }
  for (const std::string& path : before) backend_->remove(path).ignore("the next one who looks removes it");
  return {};
}

Status IndexFolder::merge(const std::set<ArenaId>* present) {
  const std::set<ArenaId> gone = present == nullptr ? runs_.said_gone() : std::set<ArenaId>();
  const RunScope scope = runs_.scope();
  const IndexRuns before = runs_;
  const std::vector<IndexRuns::Run> merged = runs_.take_merged(gone);
  if (merged.empty()) return {};
  std::vector<std::shared_ptr<const ChunkIndexRun>> opened;
  opened.reserve(merged.size());
  for (const IndexRuns::Run& run : merged) opened.push_back(run.opened);
  Result<MergedRuns> all = MergedRuns::open(std::move(opened), scope, [&](const ArenaId& id) {
    return present == nullptr ? !gone.contains(id) : present->contains(id);
  });
  Status added = all.status();
  if (all.ok() && !all->arenas().empty()) added = add(all->arenas(), all->entry_count(), [&] { return all->next(); });
  if (!added.ok()) {
    runs_ = before;
    return added;
  }
  for (const IndexRuns::Run& run : merged)
    backend_->remove(run.path).ignore("it is found again next time, and merged again");
  return {};
}

Status IndexFolder::find(std::span<const uint64_t> prefixes, std::span<uint32_t> counts,
                         std::vector<ChunkCandidate>& candidates) {
  for (size_t i = 0; i < prefixes.size(); ++i) {
    const size_t before = candidates.size();
    runs_.find(prefixes[i], candidates);
    counts[i] = static_cast<uint32_t>(candidates.size() - before);
  }
  return {};
}

namespace {
/// A cached pack table is about 6 KiB with the default sizes of packs and chunks.
constexpr uint64_t kPackTableBytesTypical = 8_KiB;
/// Of places that are worked on at the same time: each waits for its server.
constexpr size_t kThreadsMax = 16;
/// How often to look again when runs were merged between two looks.
constexpr int kLooksMax = 3;
}  // namespace

ChunkIndex::ChunkIndex(const Store& store, std::set<ArenaId> excluded, uint64_t memory_bytes, IndexFolder::Use use)
    : store_(store),
      excluded_(std::move(excluded)),
      memory_bytes_(memory_bytes),
      use_(use),
      lookup_(store.chunk_lookup()) {
  if (lookup_ != nullptr && lookup_->keeps_index()) return;
  const uint32_t places = store.spread().places();
  for (uint32_t place = 0; place < places; ++place) {
    const RunScope scope = places == 1 ? RunScope::all() : RunScope::of_place(place, places);
    folders_.emplace_back(store.backend(), store.index_path(place), store.id(), IndexFolder::Options{use, scope});
  }
  if (lookup_ != nullptr) return;
  lookup_ = &folders_.front();
  if (places == 1) return;
  std::vector<ChunkLookup*> lookups;
  for (IndexFolder& folder : folders_) lookups.push_back(&folder);
  own_spread_ = std::make_unique<SpreadChunkLookup>(std::move(lookups));
  lookup_ = own_spread_.get();
}

Result<std::unique_ptr<ChunkIndex>> ChunkIndex::open(const Store& store, std::set<ArenaId> excluded,
                                                     uint64_t memory_bytes, Upkeep upkeep) {
  const bool asks = store.chunk_lookup() != nullptr;
  std::unique_ptr<ChunkIndex> index(new ChunkIndex(store, std::move(excluded), memory_bytes,
                                                   asks ? IndexFolder::Use::cover : IndexFolder::Use::look_up));
  if (upkeep == Upkeep::here) VARVE_TRY(index->bring_up_to_date());
  if (upkeep == Upkeep::others) VARVE_TRY(index->look_at_some());
  return index;
}

bool ChunkIndex::would_be_empty(const Store& store) {
  if (store.chunk_lookup() != nullptr) return false;
  for (uint32_t place = 0; place < store.spread().places(); ++place) {
    const Result<std::vector<DirectoryEntry>> runs = store.backend().list(store.index_path(place));
    if (!runs.ok() || !runs->empty()) return false;
  }
  const Result<std::vector<ArenaId>> arenas = store.list_arenas();
  return arenas.ok() && arenas->empty();
}

Status ChunkIndex::complete(const Store& store, uint64_t memory_bytes) {
  ChunkIndex index(store, {}, memory_bytes, IndexFolder::Use::cover);
  VARVE_TRY(index.bring_up_to_date());
  return index.incomplete();
}

template <class Act>
Status ChunkIndex::at_all_places(const Act& act) {
  return parallel_for(folders_.size(), std::min(folders_.size(), kThreadsMax),
                      [&](size_t place) -> Status { return act(static_cast<uint32_t>(place), folders_[place]); });
}

Result<std::set<ArenaId>> ChunkIndex::load() {
  std::set<ArenaId> present;
  for (int look = 0; look < kLooksMax; ++look) {
    // Runs are listed first: one that names an arena of which nothing is seen afterwards names one that is gone, and
    // not one that has just come.
    VARVE_TRY(at_all_places([](uint32_t, IndexFolder& folder) { return folder.list(); }));
    VARVE_ASSIGN(const std::vector<ArenaId> arenas, store_.list_arenas());
    present = {arenas.begin(), arenas.end()};
    VARVE_TRY(at_all_places([&](uint32_t, IndexFolder& folder) { return folder.load(&present); }));
    // What the server of a place has merged meanwhile need not be indexed again.
    const bool overtaken =
        std::any_of(folders_.begin(), folders_.end(), [](const IndexFolder& folder) { return folder.overtaken(); });
    if (use_ == IndexFolder::Use::look_up || !overtaken) break;
  }
  return present;
}

Status ChunkIndex::bring_up_to_date() {
  if (folders_.empty()) return {};
  VARVE_ASSIGN(const std::set<ArenaId> present, load());
  Wanted missing(folders_.size());
  for (size_t place = 0; place < folders_.size(); ++place) {
    const std::set<ArenaId> covered = folders_[place].runs().covered();
    std::set_difference(present.begin(), present.end(), covered.begin(), covered.end(),
                        std::inserter(missing[place], missing[place].end()));
  }
  incomplete_ = index_arenas(missing);
  const Status tidied = at_all_places([&](uint32_t, IndexFolder& folder) {
    if (use_ == IndexFolder::Use::cover) return folder.tell_gone(present);
    return folder.runs().merge_wanted() ? folder.merge(&present) : Status();
  });
  tidied.ignore("an index that stays in many runs, or names what is gone, is slower, not wrong");
  return {};
}

Status ChunkIndex::look_at_some() {
  return at_all_places([](uint32_t, IndexFolder& folder) -> Status {
    VARVE_TRY(folder.list(kRunsMax / 2));
    return folder.load(nullptr);
  });
}

Status ChunkIndex::index_arenas(const Wanted& missing) {
  std::set<ArenaId> all;
  for (const std::set<ArenaId>& wanted : missing) all.insert(wanted.begin(), wanted.end());
  const size_t entries_max = std::max<size_t>(memory_bytes_ / sizeof(ChunkIndexEntry), 65'536);
  ChunkIndexEntries entries;
  std::vector<ArenaId> table;
  const auto take_in = [&](const ArenaId& id, const Result<std::shared_ptr<ArenaReader>>& reader) -> Status {
    if (!reader.ok()) return {};  // verify reports it; here it only means that nothing is found in it
    uint64_t chunk_count = 0;
    for (const FrameEntry& pack : (*reader)->index().packs)
      chunk_count += std::min<uint64_t>(pack.chunk_count, kPackBytesMax);
    if (!table.empty() && entries.size() + chunk_count > entries_max) {
      VARVE_TRY(write(table, std::move(entries), &missing, true));
      entries = {};
      table.clear();
    }
    const auto arena_ordinal = static_cast<uint32_t>(table.size());
    table.push_back(id);
    for (size_t pack = 0; pack < (*reader)->index().packs.size(); ++pack) {
      Result<PackMeta> meta = (*reader)->read_pack_meta(pack);
      if (!meta.ok()) continue;
      const std::vector<bool> held = meta->held();
      for (size_t chunk = 0; chunk < meta->chunks.size(); ++chunk) {
        if (!held[chunk]) continue;
        entries.push_back({meta->chunks[chunk].score.prefix(), arena_ordinal, static_cast<uint32_t>(pack),
                           static_cast<uint32_t>(chunk)});
      }
    }
    return {};
  };
  VARVE_TRY(each_arena(store_, std::vector<ArenaId>(all.begin(), all.end()), take_in));
  return write(table, std::move(entries), &missing, true);
}

Status ChunkIndex::add(const std::vector<ArenaId>& arenas, ChunkIndexEntries entries) {
  return write(arenas, std::move(entries), nullptr, false);
}

void ChunkIndex::hold(const std::vector<ArenaId>& arenas, ChunkIndexEntries entries) {
  if (folders_.empty()) return;
  for (ChunkIndexEntry& entry : entries) entry.arena += static_cast<uint32_t>(held_arenas_.size());
  std::sort(entries.begin(), entries.end());
  held_arenas_.insert(held_arenas_.end(), arenas.begin(), arenas.end());
  if (held_.empty()) {
    held_ = std::move(entries);
    return;
  }
  // Merged from the end, where there is room, without a copy of either; of equal ones, those that were held come first.
  size_t left = held_.size();
  held_.reserve(held_.size() + entries.size());
  held_.resize(held_.size() + entries.size());
  for (auto at = held_.end(); !entries.empty();) {
    if (left > 0 && entries.back() < held_[left - 1]) {
      *--at = held_[--left];
    } else {
      *--at = entries.back();
      entries.pop_back();
    }
  }
}

Status ChunkIndex::share_held(bool goes_on) {
  const std::vector<ArenaId> arenas = std::exchange(held_arenas_, {});
  VARVE_TRY(write(arenas, std::exchange(held_, {}), nullptr, goes_on));
  const bool merges = goes_on && use_ == IndexFolder::Use::look_up &&
                      std::any_of(folders_.begin(), folders_.end(),
                                  [](const IndexFolder& folder) { return folder.runs().merge_wanted(); });
  if (!merges) return {};
  VARVE_ASSIGN(const std::vector<ArenaId> all, store_.list_arenas());
  const std::set<ArenaId> present(all.begin(), all.end());
  return at_all_places(
      [&](uint32_t, IndexFolder& folder) { return folder.runs().merge_wanted() ? folder.merge(&present) : Status(); });
}

void ChunkIndex::find_held(uint64_t prefix, std::vector<ChunkCandidate>& candidates) const {
  const ChunkIndexEntry wanted{.prefix = prefix};
  for (auto [at, end] = std::equal_range(held_.begin(), held_.end(), wanted); at != end; ++at)
    candidates.push_back({held_arenas_[at->arena], at->pack, at->chunk});
}

Status ChunkIndex::write(const std::vector<ArenaId>& arenas, ChunkIndexEntries entries, const Wanted* wanted,
                         bool looks_in) {
  if (arenas.empty() || folders_.empty()) return {};
  std::sort(entries.begin(), entries.end());
  const ArenaSpread& spread = store_.spread();
  return at_all_places([&](uint32_t place, IndexFolder&) {
    auto begin_of = [&](uint32_t first) {
      return std::partition_point(entries.begin(), entries.end(), [&](const ChunkIndexEntry& entry) {
        return spread.place_of_prefix(entry.prefix) < first;
      });
    };
    return write_to(place, arenas, {begin_of(place), begin_of(place + 1)},
                    wanted == nullptr ? nullptr : &(*wanted)[place], looks_in);
  });
}

Status ChunkIndex::write_to(uint32_t place, const std::vector<ArenaId>& arenas,
                            std::span<const ChunkIndexEntry> entries, const std::set<ArenaId>* wanted, bool looks_in) {
  constexpr uint32_t kUnwanted = UINT32_MAX;
  std::vector<ArenaId> table;
  std::vector<uint32_t> ordinals;
  for (const ArenaId& id : arenas) {
    const bool is_wanted = wanted == nullptr || wanted->contains(id);
    ordinals.push_back(is_wanted ? static_cast<uint32_t>(table.size()) : kUnwanted);
    if (is_wanted) table.push_back(id);
  }
  if (table.empty()) return {};
  auto is_wanted = [&](const ChunkIndexEntry& entry) { return ordinals[entry.arena] != kUnwanted; };
  const auto count = static_cast<uint64_t>(std::count_if(entries.begin(), entries.end(), is_wanted));
  auto at = entries.begin();
  const auto next = [&] {
    at = std::find_if(at, entries.end(), is_wanted);
    ChunkIndexEntry entry = *at++;
    entry.arena = ordinals[entry.arena];
    return entry;
  };
  IndexFolder& folder = folders_[place];
  return looks_in ? folder.add(std::move(table), count, next) : folder.leave(std::move(table), count, next);
}

uint64_t ChunkIndex::entry_count() const {
  uint64_t sum = 0;
  for (const IndexFolder& folder : folders_) sum += folder.runs().entry_count();
  return sum;
}

size_t ChunkIndex::run_count() const {
  size_t sum = 0;
  for (const IndexFolder& folder : folders_) sum += folder.runs().count();
  return sum;
}

std::vector<Status> ChunkIndex::healed() const {
  std::vector<Status> all;
  for (const IndexFolder& folder : folders_) all.insert(all.end(), folder.healed().begin(), folder.healed().end());
  return all;
}

void ChunkIndex::find(uint64_t prefix, std::vector<ChunkCandidate>& candidates) const {
  uint32_t count = 0;
  lookup_->find({&prefix, 1}, {&count, 1}, candidates).ignore("what is not found is stored once more");
}

bool ChunkIndex::worth_asking(uint64_t prefix) const {
  return lookup_->keeps_index() || folders_[store_.spread().place_of_prefix(prefix)].runs().entry_count() > 0;
}

template <class Take>
void ChunkIndex::Cursor::visit(const Score& score, size_t bytes, const Take& take) {
  find_candidates(score.prefix());
  for (const ChunkCandidate& candidate : candidates_) {
    const PackTable* found = table(candidate.arena, candidate.pack);
    if (found == nullptr || candidate.chunk >= found->chunks.size() || !found->held[candidate.chunk]) continue;
    const ChunkEntry& chunk = found->chunks[candidate.chunk];
    if (chunk.score == score && chunk.bytes == bytes && !take({found->link, found->offsets[candidate.chunk]})) return;
  }
}

std::optional<KnownChunk> ChunkIndex::Cursor::find(const Score& score, size_t bytes) {
  std::optional<KnownChunk> first;
  visit(score, bytes, [&](const KnownChunk& known) {
    first = known;
    return false;
  });
  return first;
}

std::vector<KnownChunk> ChunkIndex::Cursor::find_all(const Score& score, size_t bytes) {
  std::vector<KnownChunk> all;
  visit(score, bytes, [&](const KnownChunk& known) {
    all.push_back(known);
    return true;
  });
  return all;
}

Status ChunkIndex::Cursor::prefetch(std::span<const uint64_t> prefixes) {
  Question asked = question(prefixes);
  VARVE_TRY(ask(lookup(), asked));
  take(asked);
  return {};
}

ChunkIndex::Cursor::Question ChunkIndex::Cursor::question(std::span<const uint64_t> prefixes) const {
  Question question;
  if (!lookup().is_far()) return question;
  std::vector<uint64_t>& unknown = question.prefixes;
  for (const uint64_t prefix : prefixes) {
    if (!beside_.contains(prefix) && index_.worth_asking(prefix)) unknown.push_back(prefix);
  }
  std::sort(unknown.begin(), unknown.end());
  unknown.erase(std::unique(unknown.begin(), unknown.end()), unknown.end());
  return question;
}

Status ChunkIndex::Cursor::ask(ChunkLookup& lookup, Question& question) {
  question.counts.resize(question.prefixes.size());
  if (question.prefixes.empty()) return {};
  return lookup.find(question.prefixes, question.counts, question.candidates);
}

void ChunkIndex::Cursor::take(const Question& answered) {
  asked_.clear();
  size_t at = 0;
  for (size_t i = 0; i < answered.prefixes.size(); ++i) {
    for (uint32_t k = 0; k < answered.counts[i] && at < answered.candidates.size(); ++k)
      asked_.emplace_back(answered.prefixes[i], answered.candidates[at++]);
  }
}

void ChunkIndex::Cursor::find_candidates(uint64_t prefix) {
  candidates_.clear();
  index_.find_held(prefix, candidates_);
  if (!lookup().is_far()) return index_.find(prefix, candidates_);
  if (const auto beside = beside_.find(prefix); beside != beside_.end()) candidates_.push_back(beside->second);
  auto found = std::lower_bound(asked_.begin(), asked_.end(), prefix,
                                [](const auto& entry, uint64_t wanted) { return entry.first < wanted; });
  for (; found != asked_.end() && found->first == prefix; ++found) candidates_.push_back(found->second);
}

void ChunkIndex::Cursor::remember_beside(const Key& key, const PackTable& table) {
  for (size_t i = 0; i < table.chunks.size(); ++i) {
    if (!table.held[i]) continue;
    beside_.emplace(table.chunks[i].score.prefix(), ChunkCandidate{key.first, key.second, static_cast<uint32_t>(i)});
  }
}

void ChunkIndex::Cursor::forget_oldest() {
  const auto oldest = tables_.find(recently_used_.back());
  if (asks_ahead() && oldest->second.table) {
    for (const ChunkEntry& chunk : oldest->second.table->chunks) {
      const auto beside = beside_.find(chunk.score.prefix());
      if (beside != beside_.end() && Key(beside->second.arena, beside->second.pack) == oldest->first)
        beside_.erase(beside);
    }
  }
  tables_.erase(oldest);
  recently_used_.pop_back();
}

const ChunkIndex::Cursor::PackTable* ChunkIndex::Cursor::table(const ArenaId& arena, uint32_t pack) {
  const Key key{arena, pack};
  if (auto found = tables_.find(key); found != tables_.end()) {
    recently_used_.splice(recently_used_.begin(), recently_used_, found->second.used);
    return found->second.table.get();
  }
  std::unique_ptr<PackTable> table;
  if (!index_.excluded_.contains(arena)) {
    Result<std::shared_ptr<ArenaReader>> reader = index_.store_.arena(arena);
    if (reader.ok() && pack < (*reader)->index().packs.size()) {
      if (Result<PackMeta> meta = (*reader)->read_pack_meta(pack); meta.ok()) {
        table = std::make_unique<PackTable>();
        table->link = {meta->score, arena};
        table->held = meta->held();
        uint64_t offset = 0;
        for (const ChunkEntry& chunk : meta->chunks) {
          table->offsets.push_back(offset);
          offset += chunk.bytes;
        }
        table->chunks = std::move(meta->chunks);
      }
    }
  }
  recently_used_.push_front(key);
  const PackTable* result = table.get();
  if (result != nullptr && asks_ahead()) remember_beside(key, *result);
  tables_.emplace(key, Cached{std::move(table), recently_used_.begin()});
  if (tables_.size() > std::max<uint64_t>(index_.memory_bytes_ / kPackTableBytesTypical, 64)) forget_oldest();
  return result;
}

}  // namespace varve
