#include "store/spread_file_system.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "core/thread_pool.h"

namespace varve {

SpreadWriter::SpreadWriter(const Store& store, const WriterLease& lease, uint32_t ordinal, ArenaWriterOptions options)
    : store_(store), options_(options), by_place_(store.spread().places()) {
  for (uint32_t place = 0; place < by_place_.size(); ++place) ids_.push_back(lease.arena_id(ordinal, place));
}

Result<SpreadWriter::Open*> SpreadWriter::arena_of(const Score& score) {
  const uint32_t place = store_.spread().place_of(score);
  Open& open = by_place_[place];
  if (open.writer == nullptr) {
    VARVE_ASSIGN(open.writer, ArenaWriter::create(store_.backend(), store_.arena_path(ids_[place]),
                                                  store_.arena_header(ids_[place]), options_));
    open.ordinal = static_cast<uint32_t>(made_.size());
    made_.push_back(place);
  }
  return &open;
}

Result<SpreadWriter::Place> SpreadWriter::append_pack(const PackMeta& meta, ByteSpan body) {
  VARVE_ASSIGN(Open* const open, arena_of(meta.score));
  VARVE_ASSIGN(const size_t ordinal, open->writer->append_pack(meta, body));
  return Place{open->ordinal, static_cast<uint32_t>(ordinal)};
}

Status SpreadWriter::append_node(const Score& score, ByteSpan content) {
  VARVE_ASSIGN(Open* const open, arena_of(score));
  return open->writer->append_node(score, content).status();
}

Status SpreadWriter::append_copy(FrameKind kind, const FrameEntry& entry, ByteSpan meta, ByteSpan body) {
  VARVE_ASSIGN(Open* const open, arena_of(entry.score));
  return open->writer->append_copy(kind, entry, meta, body);
}

Status SpreadWriter::seal() {
  // At the same time: each waits for its own disk.
  return parallel_for(made_.size(), made_.size(), [&](size_t i) -> Status {
    const uint32_t place = made_[i];
    return by_place_[place].writer->seal();
  });
}

std::vector<ArenaId> SpreadWriter::arenas() const {
  std::vector<ArenaId> arenas;
  for (const uint32_t place : made_) arenas.push_back(ids_[place]);
  return arenas;
}

uint64_t SpreadWriter::bytes() const {
  uint64_t bytes = 0;
  for (const Open& open : by_place_) bytes += open.writer == nullptr ? 0 : open.writer->bytes();
  return bytes;
}

namespace {
constexpr std::string_view kArenas = "arenas";
/// Of places that are asked at the same time.
constexpr size_t kThreadsMax = 16;

bool is_arenas_folder(const std::string& path) { return base_name(path) == kArenas; }

/// Of all places: what one of them has lost may be what is at another is about.
struct SpreadWatch final : PowerWatch {
  explicit SpreadWatch(size_t places) : watches(places) {}
  std::vector<std::unique_ptr<PowerWatch>> watches;
};
}  // namespace

SpreadFileSystem::SpreadFileSystem(std::vector<SpreadPlace> places)
    : places_(std::move(places)), root_(places_.front().path), spread_(static_cast<uint32_t>(places_.size())) {}

SpreadFileSystem::Home SpreadFileSystem::home_of(const std::string& path) const {
  if (is_arenas_folder(parent_path(path))) {
    const std::string name = base_name(path);
    const Result<ArenaId> arena = ArenaId::parse(std::string_view(name).substr(0, name.find('.')));
    const uint32_t place = arena.ok() ? spread_.place_of(*arena) : 0;
    return {place, at(places_[place], path), arena.ok()};
  }
  // An index folder or what is in it.
  for (const std::string& folder : {path, parent_path(path)}) {
    if (parent_path(folder) != root_) continue;
    const std::optional<uint32_t> place = index_folder_place(base_name(folder), spread_.places());
    if (!place) continue;
    const SpreadPlace& there = places_[*place];
    return {*place, join_path(there.path, index_folder_name(0)) + path.substr(folder.size()), false};
  }
  return {0, at(places_.front(), path), false};
}

std::string SpreadFileSystem::at(const SpreadPlace& place, const std::string& path) const {
  return path.starts_with(root_) ? place.path + path.substr(root_.size()) : path;
}

template <class T, class Question>
Result<T> SpreadFileSystem::ask(const std::string& path, const Question& question) {
  const Home home = home_of(path);
  if (!home.is_arena) return question(fs_of(home), home.path);
  std::vector<uint32_t> order = {last_place_of(path, home), home.place};
  for (uint32_t place = 0; place < places_.size(); ++place) order.push_back(place);
  std::vector<bool> asked(places_.size());
  Status missing;
  for (const uint32_t place : order) {
    if (asked[place]) continue;
    asked[place] = true;
    Result<T> found = question(*places_[place].fs, at(places_[place], path));
    if (found.ok()) remember(path, home, place);
    // A place that cannot answer may be the one that has it.
    if (found.status().code() != StatusCode::not_found) return found;
    if (place == home.place) missing = found.status();
  }
  return missing;
}

uint32_t SpreadFileSystem::last_place_of(const std::string& path, const Home& home) const {
  const MutexLock lock(mutex_);
  const auto found = away_.find(base_name(path));
  return found == away_.end() ? home.place : found->second;
}

void SpreadFileSystem::remember(const std::string& path, const Home& home, uint32_t place) {
  const MutexLock lock(mutex_);
  if (place == home.place) {
    away_.erase(base_name(path));
  } else {
    away_[base_name(path)] = place;
  }
}

std::string SpreadFileSystem::shown_path(const std::string& path) const {
  const Home home = home_of(path);
  return home.is_arena ? at(places_[last_place_of(path, home)], path) : home.path;
}

template <class Act>
Status SpreadFileSystem::at_all_places(const Act& act) const {
  return parallel_for(places_.size(), std::min(places_.size(), kThreadsMax),
                      [&](size_t place) -> Status { return act(place); });
}

Result<std::unique_ptr<File>> SpreadFileSystem::open_read(const std::string& path) {
  return ask<std::unique_ptr<File>>(path, [](FileSystem& fs, const std::string& there) { return fs.open_read(there); });
}

Result<std::unique_ptr<File>> SpreadFileSystem::create(const std::string& path, CreateOptions options) {
  const Home home = home_of(path);
  return fs_of(home).create(home.path, options);
}

Status SpreadFileSystem::create_directory(const std::string& path) {
  if (is_arenas_folder(path)) {
    return at_all_places([&](size_t place) { return places_[place].fs->create_directory(at(places_[place], path)); });
  }
  const Home home = home_of(path);
  return fs_of(home).create_directory(home.path);
}

Status SpreadFileSystem::rename(const std::string& from, const std::string& to) {
  const Home home = home_of(from), goal = home_of(to);
  return fs_of(home).rename(home.path, goal.path);
}

Status SpreadFileSystem::rename_no_replace(const std::string& from, const std::string& to) {
  const Home home = home_of(from), goal = home_of(to);
  return fs_of(home).rename_no_replace(home.path, goal.path);
}

Status SpreadFileSystem::remove(const std::string& path) {
  const Home home = home_of(path);
  if (!home.is_arena) return fs_of(home).remove(home.path);
  Status failure = Status::not_found("there is no such arena", path);
  bool removed = false;
  remember(path, home, home.place);
  for (const SpreadPlace& place : places_) {
    const Status outcome = place.fs->remove(at(place, path));
    removed = removed || outcome.ok();
    if (!outcome.ok() && outcome.code() != StatusCode::not_found) failure = outcome;
  }
  return removed && failure.code() == StatusCode::not_found ? Status() : failure;
}

Status SpreadFileSystem::remove_directory(const std::string& path) {
  const Home home = home_of(path);
  return fs_of(home).remove_directory(home.path);
}

Status SpreadFileSystem::sync_directory(const std::string& path) {
  if (is_arenas_folder(path)) {
    return at_all_places([&](size_t place) { return places_[place].fs->sync_directory(at(places_[place], path)); });
  }
  const Home home = home_of(path);
  return fs_of(home).sync_directory(home.path);
}

Result<std::unique_ptr<PowerWatch>> SpreadFileSystem::watch_power() {
  auto all = std::make_unique<SpreadWatch>(places_.size());
  const Status watched = at_all_places([&](size_t place) -> Status {
    VARVE_ASSIGN(all->watches[place], places_[place].fs->watch_power());
    return {};
  });
  VARVE_TRY(watched);
  return std::unique_ptr<PowerWatch>(std::move(all));
}

Status SpreadFileSystem::touch(const std::string& path) {
  const Home home = home_of(path);
  return fs_of(home).touch(home.path);
}

Result<std::vector<DirectoryEntry>> SpreadFileSystem::list(const std::string& path) {
  if (!is_arenas_folder(path)) {
    const Home home = home_of(path);
    return fs_of(home).list(home.path);
  }
  std::vector<std::vector<DirectoryEntry>> entries(places_.size());
  const Status listed = at_all_places([&](size_t place) -> Status {
    VARVE_ASSIGN(entries[place], places_[place].fs->list(at(places_[place], path)));
    return {};
  });
  VARVE_TRY(listed);
  std::vector<DirectoryEntry> all;
  std::set<std::string> names;
  for (uint32_t place = 0; place < places_.size(); ++place) {
    for (DirectoryEntry& entry : entries[place]) {
      const std::string there = join_path(path, entry.name);
      const Home home = home_of(there);
      const bool is_new = names.insert(entry.name).second;
      if (home.is_arena && (is_new || home.place == place)) remember(there, home, place);
      if (is_new) all.push_back(std::move(entry));
    }
  }
  return all;
}

Result<uint64_t> SpreadFileSystem::free_bytes(const std::string& path) {
  if (!is_arenas_folder(path)) {
    const Home home = home_of(path);
    return fs_of(home).free_bytes(home.path);
  }
  std::vector<uint64_t> bytes(places_.size());
  const Status asked = at_all_places([&](size_t place) -> Status {
    VARVE_ASSIGN(bytes[place], places_[place].fs->free_bytes(at(places_[place], path)));
    return {};
  });
  VARVE_TRY(asked);
  return std::accumulate(bytes.begin(), bytes.end(), uint64_t{0});
}

Result<FileStatus> SpreadFileSystem::stat(const std::string& path) {
  return ask<FileStatus>(path, [](FileSystem& fs, const std::string& there) { return fs.stat(there); });
}

/// What one place is asked, and its answer.
struct SpreadChunkLookup::Question {
  std::vector<uint64_t> prefixes;
  std::vector<uint32_t> counts;
  std::vector<ChunkCandidate> candidates;
  size_t next_prefix = 0, next_candidate = 0;
};

SpreadChunkLookup::SpreadChunkLookup(std::vector<ChunkLookup*> places)
    : places_(std::move(places)),
      spread_(static_cast<uint32_t>(places_.size())),
      pool_(std::make_unique<ThreadPool>(places_.size())) {}

SpreadChunkLookup::~SpreadChunkLookup() = default;

Status SpreadChunkLookup::find(std::span<const uint64_t> prefixes, std::span<uint32_t> counts,
                               std::vector<ChunkCandidate>& candidates) {
  std::vector<Question> questions(places_.size());
  for (const uint64_t prefix : prefixes) questions[spread_.place_of_prefix(prefix)].prefixes.push_back(prefix);
  VARVE_TRY(ask(questions));
  for (size_t i = 0; i < prefixes.size(); ++i) {
    Question& question = questions[spread_.place_of_prefix(prefixes[i])];
    const size_t left = question.candidates.size() - question.next_candidate;
    counts[i] = static_cast<uint32_t>(std::min<size_t>(question.counts[question.next_prefix++], left));
    for (uint32_t k = 0; k < counts[i]; ++k) candidates.push_back(question.candidates[question.next_candidate++]);
  }
  return {};
}

Status SpreadChunkLookup::ask(std::vector<Question>& questions) const {
  std::vector<Task<Status>> tasks;
  std::optional<size_t> own;  // one place is asked by this thread: to wake another one takes time
  auto ask_place = [this, &questions](size_t place) {
    Question& question = questions[place];
    question.counts.resize(question.prefixes.size());
    return places_[place]->find(question.prefixes, question.counts, question.candidates);
  };
  for (size_t place = 0; place < places_.size(); ++place) {
    if (questions[place].prefixes.empty()) continue;
    if (own) tasks.push_back(pool_->submit([ask_place, asked = *own] { return ask_place(asked); }));
    own = place;
  }
  Status failure = own ? ask_place(*own) : Status();
  for (Task<Status>& task : tasks) {
    const Status status = task.wait();
    if (failure.ok()) failure = status;
  }
  return failure;
}

}  // namespace varve
