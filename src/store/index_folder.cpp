#include "store/index_folder.h"

#include <algorithm>

#include "store/merged_runs.h"

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

IndexFolder::IndexFolder(FileSystem& fs, std::string path, const UniqueId& store, Options options)
    : fs_(&fs),
      path_(std::move(path)),
      store_(store),
      options_(options),
      budget_(std::make_shared<PageBudget>(options.held_bytes)) {}

Status IndexFolder::list() {
  listed_.clear();
  Result<std::vector<DirectoryEntry>> entries = fs_->list(path_);
  if (entries.status().code() == StatusCode::not_found) return fs_->create_directory(path_);
  VARVE_TRY(entries.status());
  for (const DirectoryEntry& entry : *entries) {
    if (entry.name.ends_with(".run")) listed_.push_back(join_path(path_, entry.name));
  }
  std::sort(listed_.begin(), listed_.end());
  return {};
}

Result<IndexFolder::Run> IndexFolder::open(const std::string& path) const {
  Run run{.path = path};
  if (options_.use == Use::cover) {
    VARVE_ASSIGN(run.table, read_run_table(*fs_, path, store_));
  } else {
    VARVE_ASSIGN(run.opened, ChunkIndexRun::open(*fs_, path, store_, budget_));
  }
  return run;
}

Status IndexFolder::load(const std::set<ArenaId>* present) {
  runs_.clear();
  overtaken_ = false;
  for (const std::string& path : listed_) {
    Result<Run> run = open(path);
    if (run.status().code() == StatusCode::not_found) {
      overtaken_ = true;
    } else if (!run.ok()) {
      // A server that cannot be reached has not lost its index.
      if (options_.use == Use::cover && run.status().code() != StatusCode::corrupt) return run.status();
      discard(path, run.status());
    } else if (worthless(run->about(), present)) {
      fs_->remove(path).ignore("it is of no use to anybody");
    } else {
      runs_.push_back(std::move(*run));
    }
  }
  return {};
}

void IndexFolder::discard(const std::string& path, const Status& why) {
  healed_.push_back(why);
  // What may not be opened by this user, or not now, may be of use to others.
  if (why.code() == StatusCode::corrupt || why.code() == StatusCode::io_error)
    fs_->remove(path).ignore("it is rebuilt under another name");
}

void IndexFolder::discard_unreadable() {
  std::erase_if(runs_, [this](const Run& run) {
    const Status failure = run.opened ? run.opened->failure() : Status();
    if (failure.ok()) return false;
    discard(run.path, failure);
    return true;
  });
}

bool IndexFolder::worthless(const RunTable& table, const std::set<ArenaId>* present) const {
  if (options_.use == Use::cover && table.scope.kind == RunScope::Kind::gone) return false;  // see tell_gone()
  const bool of_fewer_places = options_.scope && options_.scope->kind == RunScope::Kind::place &&
                               table.scope.kind == RunScope::Kind::place &&
                               table.scope.places <= options_.scope->places && table.scope != *options_.scope;
  return of_fewer_places || (present != nullptr && count_in(*present, table.arenas) == 0);
}

bool IndexFolder::covers(const RunTable& table) const {
  return table.scope == RunScope::all() || table.scope == scope();
}

RunScope IndexFolder::scope() const {
  if (options_.scope) return *options_.scope;
  RunScope newest;
  for (const Run& run : runs_) {
    const RunScope& scope = run.about().scope;
    if (scope.kind == RunScope::Kind::place && scope.places > newest.places) newest = scope;
  }
  return newest;
}

std::set<ArenaId> IndexFolder::covered() const {
  std::set<ArenaId> covered;
  for (const Run& run : runs_) {
    if (is_of_arenas(run.about().scope) && covers(run.about()))
      covered.insert(run.about().arenas.begin(), run.about().arenas.end());
  }
  return covered;
}

std::set<ArenaId> IndexFolder::named() const {
  std::set<ArenaId> named;
  for (const Run& run : runs_) {
    if (is_of_arenas(run.about().scope)) named.insert(run.about().arenas.begin(), run.about().arenas.end());
  }
  return named;
}

std::set<ArenaId> IndexFolder::said_gone() const {
  std::set<ArenaId> gone;
  for (const Run& run : runs_) {
    if (!is_of_arenas(run.about().scope)) gone.insert(run.about().arenas.begin(), run.about().arenas.end());
  }
  return gone;
}

Result<std::string> IndexFolder::new_path() const {
  VARVE_ASSIGN(const UniqueId name, UniqueId::random());
  return join_path(path_, name.hex() + ".run");
}

Status IndexFolder::add(std::vector<ArenaId> arenas, uint64_t entry_count,
                        const std::function<Result<ChunkIndexEntry>()>& next) {
  discard_unreadable();
  VARVE_ASSIGN(const std::string path, new_path());
  Run added{path, {std::move(arenas), scope(), entry_count}, nullptr};
  const Status written = write_index_run(*fs_, path, store_, added.table, next);
  if (!written.ok()) {
    fs_->remove(path + ".part").ignore("prune removes it");
    return written;
  }
  if (options_.use == Use::look_up) {
    Result<Run> run = open(path);
    // Merged by another save just now, removed with its arenas by a prune, or not to be opened: what it knows is found
    // next time.
    if (!run.ok()) return {};
    added = std::move(*run);
  }
  runs_.push_back(std::move(added));
  return {};
}

Status IndexFolder::tell_gone(const std::set<ArenaId>& present) {
  std::set<ArenaId> gone;
  for (const ArenaId& id : named()) {
    if (!present.contains(id)) gone.insert(id);
  }
  std::vector<std::string> before;
  for (const Run& run : runs_) {
    if (!is_of_arenas(run.about().scope)) before.push_back(run.path);
  }
  if (gone == said_gone() && before.size() <= 1) return {};
  if (!gone.empty()) {
    VARVE_ASSIGN(const std::string path, new_path());
    const RunTable table{{gone.begin(), gone.end()}, RunScope::gone(), 0};
    VARVE_TRY(write_index_run(*fs_, path, store_, table, [] { return ChunkIndexEntry(); }));
  }
  for (const std::string& path : before) fs_->remove(path).ignore("the next one who looks removes it");
  return {};
}

bool IndexFolder::merge_wanted() const {
  const std::set<ArenaId> gone = said_gone();
  size_t runs = 0;
  for (const Run& run : runs_) {
    if (!is_of_arenas(run.about().scope) || !covers(run.about())) continue;
    ++runs;
    if (mostly(gone, run.about())) return true;
  }
  return runs > kRunsMax;
}

/// Those to be merged, out of runs_: if there are too many, the smaller half becomes one run, so that each entry is
/// copied a number of times logarithmic in the size of the store.
std::vector<IndexFolder::Run> IndexFolder::take_merged(const std::set<ArenaId>& gone) {
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

Status IndexFolder::merge(const std::set<ArenaId>* present) {
  const std::set<ArenaId> gone = present == nullptr ? said_gone() : std::set<ArenaId>();
  const RunScope scope = this->scope();
  const std::vector<Run> before = runs_;
  const std::vector<Run> merged = take_merged(gone);
  if (merged.empty()) return {};
  std::vector<std::shared_ptr<const ChunkIndexRun>> opened;
  opened.reserve(merged.size());
  for (const Run& run : merged) opened.push_back(run.opened);
  Result<MergedRuns> all = MergedRuns::open(std::move(opened), scope, [&](const ArenaId& id) {
    return present == nullptr ? !gone.contains(id) : present->contains(id);
  });
  Status added = all.status();
  if (all.ok() && !all->arenas().empty()) added = add(all->arenas(), all->entry_count(), [&] { return all->next(); });
  if (!added.ok()) {
    runs_ = before;
    return added;
  }
  for (const Run& run : merged) fs_->remove(run.path).ignore("it is found again next time, and merged again");
  return {};
}

void IndexFolder::prefetch(uint64_t prefix) const {
  for (const Run& run : runs_) {
    if (run.opened) run.opened->prefetch(prefix);
  }
}

void IndexFolder::find(uint64_t prefix, std::vector<ChunkCandidate>& candidates) const {
  for (const Run& run : runs_) {
    if (run.opened) run.opened->find(prefix, candidates);
  }
}

uint64_t IndexFolder::entry_count() const {
  uint64_t sum = 0;
  for (const Run& run : runs_) sum += run.about().entry_count;
  return sum;
}

}  // namespace varve
