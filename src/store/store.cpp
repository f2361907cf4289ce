#include "store/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <vector>

#include "backend/folder_backend.h"
#include "core/guarded.h"
#include "core/process.h"
#include "core/thread_pool.h"
#include "format/store_header.h"

namespace varve {

namespace {
std::string member_path(const Backend& backend) { return join_path(backend.root(), kSpreadMemberName); }
}  // namespace

Result<std::optional<SpreadMember>> read_spread_member(Backend& backend) {
  const std::string path = member_path(backend);
  const Result<ByteVector> raw = backend.read_record(path, kSpreadMemberBytesMax);
  if (raw.status().code() == StatusCode::not_found) return std::optional<SpreadMember>();
  VARVE_TRY(raw.status());
  const Result<SpreadMember> member = decode_spread_member(as_text(*raw));
  if (member.ok()) return std::optional(*member);
  return Status::corrupt(std::string(member.status().message()), path,
                         "put the file back from a copy, or ask for help: nothing else is wrong");
}

Status write_spread_member(Backend& backend, const SpreadMember& member) {
  return backend.records().replace(member_path(backend), as_bytes(encode_spread_member(member)));
}

Status missing_store(Backend& backend) {
  const std::string& path = backend.root();
  // A creation that was stopped leaves empty folders.
  for (const char* folder : {"arenas", "sets"}) {
    const Result<std::vector<DirectoryEntry>> inside = backend.list(join_path(path, folder));
    if (!inside.ok() || inside->empty()) continue;
    return Status::corrupt("a store is here whose header is lost", Store::header_path(path), Remedy::rebuild_header);
  }
  return Status::not_found("no store here", path, {Remedy::create_store, path});
}

std::vector<ArenaId> ArenaDirectory::candidates(const Score& score) const {
  const MutexLock lock(mutex_);
  std::set<ArenaId> found = uncertain_;
  const auto [begin, end] = std::equal_range(entries_.begin(), entries_.end(), Entry{score.prefix(), 0},
                                             [](const Entry& a, const Entry& b) { return a.prefix < b.prefix; });
  for (auto entry = begin; entry != end; ++entry) found.insert(arenas_[entry->arena]);
  return {found.begin(), found.end()};
}

uint64_t ArenaDirectory::rounds() const {
  const MutexLock lock(mutex_);
  return rounds_;
}

Status ArenaDirectory::refresh(const Store& store, uint64_t rounds_seen) {
  const MutexLock refreshing(refresh_mutex_);
  if (done_round_ > rounds_seen) return {};
  std::set<ArenaId> known;
  uint64_t round = 0;
  {
    const MutexLock lock(mutex_);
    round = ++rounds_;
  }
  VARVE_ASSIGN(const std::vector<ArenaId> listed, store.list_arenas());
  {
    const MutexLock lock(mutex_);
    forget_gone({listed.begin(), listed.end()});
    known.insert(arenas_.begin(), arenas_.end());
  }
  std::vector<ArenaId> fresh;
  std::vector<Entry> entries;
  std::set<ArenaId> uncertain;
  std::vector<ArenaId> unknown;
  std::set_difference(listed.begin(), listed.end(), known.begin(), known.end(), std::back_inserter(unknown));
  VARVE_TRY(store.each_arena(unknown, [&](const ArenaId& id, const Result<std::shared_ptr<ArenaReader>>& arena) {
    // It may hold more than is seen now, so that it is looked into each time.
    if (!arena.ok() || !(*arena)->index_status().ok()) {
      uncertain.insert(id);
      return Status();
    }
    const auto ordinal = static_cast<uint32_t>(fresh.size());
    fresh.push_back(id);
    for (const auto* list : {&(*arena)->index().packs, &(*arena)->index().nodes}) {
      for (const FrameEntry& entry : *list) entries.push_back({entry.score.prefix(), ordinal});
    }
    return Status();
  }));
  take_in(fresh, std::move(entries), std::move(uncertain));
  done_round_ = round;
  return {};
}

void ArenaDirectory::forget_gone(const std::set<ArenaId>& present) {
  std::vector<uint32_t> ordinals;
  std::vector<ArenaId> kept;
  for (const ArenaId& id : arenas_) {
    const bool there = present.contains(id);
    ordinals.push_back(there ? static_cast<uint32_t>(kept.size()) : UINT32_MAX);
    if (there) kept.push_back(id);
  }
  if (kept.size() == arenas_.size()) return;
  std::erase_if(entries_, [&](const Entry& entry) { return ordinals[entry.arena] == UINT32_MAX; });
  for (Entry& entry : entries_) entry.arena = ordinals[entry.arena];
  arenas_ = std::move(kept);
}

void ArenaDirectory::take_in(const std::vector<ArenaId>& arenas, std::vector<Entry> entries,
                             std::set<ArenaId> uncertain) {
  auto by_prefix = [](const Entry& a, const Entry& b) { return a.prefix < b.prefix; };
  std::sort(entries.begin(), entries.end(), by_prefix);
  const MutexLock lock(mutex_);
  const auto first = static_cast<uint32_t>(arenas_.size());
  for (Entry& entry : entries) entry.arena += first;
  arenas_.insert(arenas_.end(), arenas.begin(), arenas.end());
  const auto middle = static_cast<ptrdiff_t>(entries_.size());
  entries_.insert(entries_.end(), entries.begin(), entries.end());
  std::inplace_merge(entries_.begin(), entries_.begin() + middle, entries_.end(), by_prefix);
  uncertain_ = std::move(uncertain);
}

namespace {
/// Readers kept open: each holds one or two file descriptors, and its arena's index.
constexpr size_t kOpenArenasMax = 256;
constexpr size_t kOpenArenasShare = 8;

/// Whether a creation that failed, or is going on, may have made it, and nothing is lost with it: a folder of ours that
/// is empty, or a header that did not get its name.
Result<bool> is_left_by_a_creation(Backend& backend, const DirectoryEntry& entry) {
  const std::string header = base_name(Store::header_path(backend.root()));
  if (!entry.is_directory) return entry.name.starts_with(header + ".") && entry.name.ends_with(".tmp");
  if (std::find(kStoreFolders.begin(), kStoreFolders.end(), entry.name) == kStoreFolders.end()) return false;
  VARVE_ASSIGN(const std::vector<DirectoryEntry> inside, backend.list(join_path(backend.root(), entry.name)));
  return inside.empty();
}
}  // namespace

Status settle_root(Backend& backend) {
  // Without it, a power cut could take all that is saved from now on.
  const Status named = backend.settle(parent_path(backend.root()));
  return named.code() == StatusCode::permission_denied ? Status() : named;
}

Status Store::create(FileSystem& fs, const std::string& path, const CreateStoreOptions& options) {
  FolderBackend folder(fs, path);
  return create(folder, options);
}

Status Store::create(Backend& backend, const CreateStoreOptions& options) {
  VARVE_TRY(ScoreFunction::create(options.algorithm, options.score_bytes).status());
  const std::string& path = backend.root();
  const std::string header = header_path(path);
  VARVE_TRY(backend.make_folder(path));
  VARVE_ASSIGN(const std::vector<DirectoryEntry> entries, backend.list(path));
  for (const DirectoryEntry& entry : entries) {
    if (entry.name == base_name(header)) return Status::already_exists("there is a store already", path);
  }
  for (const DirectoryEntry& entry : entries) {
    VARVE_ASSIGN(const bool harmless, is_left_by_a_creation(backend, entry));
    if (!harmless)
      return Status::already_exists("there is something else already", path, "name a place with nothing in it");
  }
  VARVE_ASSIGN(const UniqueId id, options.id ? Result<UniqueId>(*options.id) : UniqueId::random());
  if (options.member)
    VARVE_TRY(backend.records().publish(member_path(backend), as_bytes(encode_spread_member(*options.member))));
  for (const std::string_view folder : kStoreFolders) VARVE_TRY(backend.make_folder(join_path(path, folder)));
  // The header comes last: without it there is no store yet, and what is there may be removed. Of two who make a store
  // at the same time, one gets it.
  VARVE_TRY(backend.records().publish(
      header, encode_store_header({id, options.algorithm, static_cast<uint8_t>(options.score_bytes)})));
  return settle_root(backend);
}

Status Store::sync_name(FileSystem& fs, const std::string& path) {
  FolderBackend folder(fs, path);
  return settle_root(folder);
}

Status Store::make_durable() const {
  const MutexLock lock(durable_mutex_);
  if (is_durable_) return {};
  VARVE_TRY(backend_->settle(path_));
  VARVE_TRY(settle_root(*backend_));
  is_durable_ = true;
  return {};
}

Result<std::unique_ptr<Store>> Store::open(FileSystem& fs, const std::string& path, ChunkLookup* chunks,
                                           ArenaSpread spread) {
  auto backend = std::make_unique<FolderBackend>(fs, path);
  FolderBackend& folder = *backend;
  return open(std::move(backend), folder, chunks, spread);
}

Result<std::unique_ptr<Store>> Store::open(Backend& backend, ChunkLookup* chunks, ArenaSpread spread) {
  return open(nullptr, backend, chunks, spread);
}

Result<std::unique_ptr<Store>> Store::open(std::unique_ptr<Backend> own, Backend& backend, ChunkLookup* chunks,
                                           ArenaSpread spread) {
  const std::string& path = backend.root();
  Result<ByteVector> raw = ByteVector();
  Result<std::optional<SpreadMember>> read_member = std::optional<SpreadMember>();
  VARVE_TRY(parallel_for(2, backend.operations_at_once(), [&](size_t i) -> Status {
    if (i == 0) {
      raw = backend.read_record(header_path(path), 4096);
    } else {
      read_member = read_spread_member(backend);
    }
    return {};
  }));
  if (!raw.ok()) {
    return raw.status().code() == StatusCode::not_found ? missing_store(backend) : raw.status();
  }
  VARVE_ASSIGN(const StoreHeader header, decode_store_header(*raw, header_path(path)));
  VARVE_ASSIGN(const std::optional<SpreadMember> member, std::move(read_member));
  if ((member ? member->count : 1) != spread.places()) {
    return Status::invalid_argument(
        fmt::format("this is one of {} places of a store, and cannot be used alone", member ? member->count : 1), path,
        "name all of its servers");
  }
  VARVE_ASSIGN(const ScoreFunction score, ScoreFunction::create(header.algorithm, header.score_bytes));
  return std::unique_ptr<Store>(new Store(std::move(own), backend, header.store, score, chunks, spread));
}

Result<UniqueId> Store::id_of_header(ByteSpan header, const std::string& path) {
  VARVE_ASSIGN(const StoreHeader decoded, decode_store_header(header, header_path(path)));
  return decoded.store;
}

ArenaHeader Store::arena_header(const ArenaId& arena) const {
  return {arena, id_, score_.algorithm(), static_cast<uint8_t>(score_.score_bytes())};
}

namespace {
/// The arenas that the names in a folder stand for, ascending.
template <class Parse>
Result<std::vector<ArenaId>> list_ids(Backend& backend, const std::string& folder, const Parse& parse) {
  VARVE_ASSIGN(const std::vector<DirectoryEntry> entries, backend.list(folder));
  std::vector<ArenaId> ids;
  for (const DirectoryEntry& entry : entries) {
    if (entry.is_directory) continue;
    if (const std::optional<ArenaId> id = parse(entry.name)) ids.push_back(*id);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}
}  // namespace

Result<std::vector<ArenaId>> Store::list_arenas() const {
  return list_ids(*backend_, arenas_path(), parse_arena_file_name);
}

Result<std::map<ArenaId, uint64_t>> Store::list_arena_sizes() const {
  VARVE_ASSIGN(const auto objects, backend_->list_with_status(arenas_path()));
  std::map<ArenaId, uint64_t> sizes;
  for (const auto& [name, status] : objects) {
    if (const std::optional<ArenaId> id = parse_arena_file_name(name)) sizes[*id] = status.ok() ? status->bytes : 0;
  }
  return sizes;
}

Result<uint64_t> Store::arena_bytes() const {
  VARVE_ASSIGN(const auto sizes, list_arena_sizes());
  uint64_t sum = 0;
  for (const auto& [id, bytes] : sizes) sum += bytes;
  return sum;
}

Result<std::vector<ArenaId>> Store::list_condemned() const {
  return list_ids(*backend_, condemned_path(), [](std::string_view name) -> std::optional<ArenaId> {
    const Result<ArenaId> id = ArenaId::parse(name);
    return id.ok() ? std::optional(*id) : std::nullopt;
  });
}

Result<std::shared_ptr<ArenaReader>> Store::arena(const ArenaId& id) const {
  uint64_t generation = 0;
  {
    const MutexLock lock(mutex_);
    while (opening_.contains(id)) opened_.wait(mutex_);
    generation = cache_generation_;
    if (auto found = arenas_.find(id); found != arenas_.end()) {
      recently_used_.splice(recently_used_.begin(), recently_used_, found->second.used);
      return found->second.reader;
    }
    opening_.insert(id);
  }
  Result<std::shared_ptr<ArenaReader>> opened =
      run_guarded([&] { return ArenaReader::open(*backend_, arena_path(id), id, id_, score_); });
  const MutexLock lock(mutex_);
  opening_.erase(id);
  opened_.notify_all();
  VARVE_ASSIGN(std::shared_ptr<ArenaReader> reader, std::move(opened));
  if (auto found = arenas_.find(id); found != arenas_.end()) return found->second.reader;
  if (generation != cache_generation_)
    return reader;  // opened before the cache was dropped: not for those who come after
  recently_used_.push_front(id);
  arenas_.emplace(id, CachedArena{reader, recently_used_.begin()});
  if (arenas_.size() > descriptors_for(kOpenArenasMax, kOpenArenasShare)) {
    arenas_.erase(recently_used_.back());
    recently_used_.pop_back();
  }
  return reader;
}

Status Store::each_arena(
    std::span<const ArenaId> ids,
    const std::function<Status(const ArenaId&, Result<std::shared_ptr<ArenaReader>>)>& visit) const {
  const size_t at_once = backend_->operations_at_once();
  while (!ids.empty()) {
    const std::span<const ArenaId> some = ids.first(std::min(ids.size(), at_once));
    std::vector<Result<std::shared_ptr<ArenaReader>>> readers(some.size(), std::shared_ptr<ArenaReader>());
    VARVE_TRY(parallel_for(some.size(), at_once, [&](size_t i) -> Status {
      readers[i] = arena(some[i]);
      return {};
    }));
    for (size_t i = 0; i < some.size(); ++i) VARVE_TRY(visit(some[i], std::move(readers[i])));
    ids = ids.subspan(some.size());
  }
  return {};
}

void Store::open_ahead(const SetRecord& record) const {
  if (backend_->operations_at_once() == 1) return;
  std::vector<ArenaId> arenas;
  for (size_t i = 0; i < std::min(record.groups.size(), kOpenArenasMax / 2); ++i)
    arenas.push_back(record.groups[i].hint);
  each_arena(arenas, [](const ArenaId&, const Result<std::shared_ptr<ArenaReader>>&) {
    return Status();
  }).ignore("it is opened again");
}

void Store::drop_arena_cache() const {
  const MutexLock lock(mutex_);
  ++cache_generation_;
  arenas_.clear();
  recently_used_.clear();
}

template <class Find>
Result<std::vector<Store::Place>> Store::find(const Score& score, const ArenaId& hint, bool all,
                                              const Find& find_in) const {
  std::vector<Place> places;
  std::set<ArenaId> looked;
  Status first_failure;
  auto look_in = [&](const ArenaId& id) {
    if (!looked.insert(id).second) return;
    Result<std::shared_ptr<ArenaReader>> reader = arena(id);
    if (!reader.ok()) {
      // One that is not there holds nothing.
      if (first_failure.ok() && reader.status().code() != StatusCode::not_found) first_failure = reader.status();
      return;
    }
    if (std::optional<size_t> ordinal = find_in(**reader)) {
      places.push_back({*reader, *ordinal});
    } else if (first_failure.ok()) {
      first_failure = (*reader)->unread_status();
    }
  };
  auto look_where_it_was_seen = [&] {
    for (const ArenaId& id : directory_.candidates(score)) look_in(id);
  };
  look_in(hint);
  if (places.empty() && !all) look_where_it_was_seen();
  if (places.empty() || all) {
    const Status refreshed = directory_.refresh(*this, directory_.rounds());
    if (!refreshed.ok() && refreshed.code() != StatusCode::not_found) return refreshed;
    look_where_it_was_seen();
  }
  if (places.empty() && !first_failure.ok()) return first_failure;
  return places;
}

Result<std::vector<Store::Place>> Store::find_pack(const Score& score, const ArenaId& hint, bool all) const {
  return find(score, hint, all, [&](const ArenaReader& reader) { return reader.find_pack(score); });
}

Result<std::vector<ArenaId>> Store::arenas_listing(std::span<const Score> scores) const {
  VARVE_TRY(directory_.refresh(*this, directory_.rounds()));
  std::set<ArenaId> arenas;
  for (const Score& score : scores) {
    const std::vector<ArenaId> candidates = directory_.candidates(score);
    arenas.insert(candidates.begin(), candidates.end());
  }
  return std::vector<ArenaId>(arenas.begin(), arenas.end());
}

namespace {
/// What no arena has, so that the arena `where` it was is damaged or gone.
Status lacking(const char* what, const std::string& where) {
  return Status::corrupt(what, where, Remedy::verify_and_replace_arena);
}

constexpr const char* kPackLacking = "no arena holds a pack that a set needs";

/// Tries `read` at the first place, and after a failure at all others. `places(all)` finds them. A copy that could not
/// be read may be whole: it is damaged only if all copies are.
template <class T, class Places, class Read>
Result<T> read_first_whole(const Places& places, const Read& read, const char* what, const std::string& where) {
  Status failure;
  for (bool all : {false, true}) {
    auto found = places(all);
    if (!found.ok()) return found.status();
    for (const Store::Place& place : *found) {
      Result<T> result = read(place);
      if (result.ok()) return result;
      if (failure.ok() || failure.code() == StatusCode::corrupt) failure = result.status();
    }
  }
  return failure.ok() ? lacking(what, where) : failure;
}

/// What a tree node says is wrong; `where` it should have been right.
Status located(const Status& wrong, const std::string& where) {
  const std::string subject = wrong.subject().empty() ? where : where + ", " + std::string(wrong.subject());
  return wrong.with_subject(subject);
}
}  // namespace

Result<Pack> Store::read_pack(const PackLink& link, std::span<const Extent> ranges) const {
  std::optional<Pack> united;  // of all copies so far, none of which had everything
  auto read = [&](const Place& place) -> Result<Pack> {
    VARVE_ASSIGN(Pack pack, place.arena->read_pack(place.ordinal));
    Status verified = pack.verify(ranges);
    if (verified.ok()) return pack;
    united = united ? Pack::united(*united, pack) : std::move(pack);
    if (united->verify(ranges).ok()) return std::move(*united);
    return Status(verified.code(), std::string(verified.message()), place.arena->path());
  };
  return read_first_whole<Pack>([&](bool all) { return find_pack(link.score, link.hint, all); }, read, kPackLacking,
                                arena_name(link.hint));
}

Status Store::check_pack_is_there(const PackLink& link) const {
  VARVE_ASSIGN(const std::vector<Place> places, find_pack(link.score, link.hint));
  return places.empty() ? lacking(kPackLacking, arena_name(link.hint)) : Status();
}

Result<ByteVector> Store::read_node(const Score& score, const ArenaId& hint) const {
  return read_first_whole<ByteVector>(
      [&](bool all) {
        return find(score, hint, all, [&](const ArenaReader& reader) { return reader.find_node(score); });
      },
      [](const Place& place) { return place.arena->read_node(place.ordinal); },
      "no arena holds a tree node that a set needs", arena_name(hint));
}

Result<Root> Store::read_root(const Score& score, const ArenaId& hint) const {
  VARVE_ASSIGN(ByteVector raw, read_node(score, hint));
  Result<Root> root = decode_root(raw, score_.score_bytes());
  if (!root.ok()) return located(root.status(), arena_name(hint));
  return root;
}

Result<Leaf> Store::read_leaf(const LeafLink& link) const {
  VARVE_ASSIGN(ByteVector node, read_node(link.score, link.hint));
  Status unreadable;  // which says itself where
  Result<std::optional<Leaf>> leaf =
      decode_leaf_of(std::move(node), score_.score_bytes(),
                     [&](const Score& score, const ArenaId& hint) -> Result<std::optional<ByteVector>> {
                       Result<ByteVector> piece = read_node(score, hint);
                       unreadable = piece.status();
                       VARVE_TRY(unreadable);
                       return std::optional(std::move(*piece));
                     });
  VARVE_TRY(unreadable);
  if (!leaf.ok()) return located(leaf.status(), arena_name(link.hint));
  return std::move(**leaf);
}

}  // namespace varve
