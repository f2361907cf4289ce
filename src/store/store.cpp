#include "store/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "backend/folder_backend.h"
#include "core/thread_pool.h"
#include "format/store_header.h"

namespace varve {

namespace {
constexpr uint64_t kHeaderBytesMax = 4096;
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
    return Status::corrupt("a store is here whose header is lost", store_header_path(path), Remedy::rebuild_header);
  }
  const Result<std::vector<DirectoryEntry>> inside = backend.list(path);
  if (!inside.ok() && backend.status(path).ok())
    return Status::not_found("no store here", path, "a store is a folder: name the one that is it");
  const bool used = inside.ok() && !inside->empty();
  return Status::not_found(
      "no store here", path,
      used ? Hint("the folder holds other things: name the one that is the store") : Hint(Remedy::create_store, path));
}

namespace {
/// Whether a creation that failed, or is going on, may have made it, and nothing is lost with it: a folder of ours that
/// is empty, or a header that did not get its name.
Result<bool> is_left_by_a_creation(Backend& backend, const DirectoryEntry& entry) {
  const std::string header = base_name(store_header_path(backend.root()));
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

Status settle_root(FileSystem& fs, const std::string& path) {
  FolderBackend folder(fs, path);
  return settle_root(folder);
}

std::string store_header_path(const std::string& path) { return join_path(path, "varve.store"); }

Status Store::create(FileSystem& fs, const std::string& path, const CreateStoreOptions& options) {
  FolderBackend folder(fs, path);
  return create(folder, options);
}

Status Store::create(Backend& backend, const CreateStoreOptions& options) {
  VARVE_TRY(ScoreFunction::create(options.algorithm, options.score_bytes).status());
  const std::string& path = backend.root();
  const std::string header = store_header_path(path);
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
  // The header comes last: without it there is no store yet, and what is there may be removed; a loss of power leaves
  // none without its folders. Of two who make a store at the same time, one gets it.
  VARVE_TRY(backend.settle(path));
  VARVE_TRY(backend.records().publish(
      header, encode_store_header({id, options.algorithm, static_cast<uint8_t>(options.score_bytes)})));
  return settle_root(backend);
}

Status Store::make_durable() const {
  const MutexLock lock(durable_mutex_);
  if (is_durable_) return {};
  VARVE_TRY(backend_->settle(path_));
  VARVE_TRY(settle_root(*backend_));
  is_durable_ = true;
  return {};
}

Status Store::check_spread() const {
  VARVE_ASSIGN(const std::optional<SpreadMember> member, read_spread_member(*backend_));
  const uint32_t places = member ? member->count : 1;
  if (places == spread_.places()) return {};
  return Status::invalid_argument(
      fmt::format("the store is spread over {} places by now, and was opened with {}", places, spread_.places()), path_,
      "name all of its servers, and begin anew");
}

Status Store::check_identity() const {
  const std::string path = store_header_path(path_);
  const Result<ByteVector> raw = backend_->read_record(path, kHeaderBytesMax);
  // One that is lost or damaged can be made anew, and says nothing.
  if (!raw.ok()) return {};
  const Result<StoreHeader> header = decode_store_header(*raw, path);
  if (!header.ok() || header->store == id_) return {};
  return Status::io_error("another store is there than was opened", path_, "see whether its disk is mounted");
}

void Store::note_durable() const {
  const MutexLock lock(durable_mutex_);
  is_durable_ = true;
}

Status Store::make_folders_durable() const {
  const MutexLock lock(durable_mutex_);
  if (has_durable_folders_) return {};
  VARVE_TRY(backend_->settle(path_));
  has_durable_folders_ = true;
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
      raw = backend.read_record(store_header_path(path), kHeaderBytesMax);
    } else {
      read_member = read_spread_member(backend);
    }
    return {};
  }));
  if (!raw.ok()) {
    return raw.status().code() == StatusCode::not_found ? missing_store(backend) : raw.status();
  }
  VARVE_ASSIGN(const StoreHeader header, decode_store_header(*raw, store_header_path(path)));
  VARVE_ASSIGN(const std::optional<SpreadMember> member, std::move(read_member));
  if ((member ? member->count : 1) != spread.places()) {
    return Status::invalid_argument(
        fmt::format("this is one of {} places of a store, and cannot be used alone", member ? member->count : 1), path,
        "name all of its servers");
  }
  VARVE_ASSIGN(const ScoreFunction score, ScoreFunction::create(header.algorithm, header.score_bytes));
  return std::unique_ptr<Store>(new Store(std::move(own), backend, header.store, score, chunks, spread));
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

Result<std::shared_ptr<ArenaReader>> Store::arena(const ArenaId& id) const {
  return arenas_.get(id, [&] { return ArenaReader::open(*backend_, arena_path(id), id, id_, score_); });
}

ArenaHeader arena_header(const Store& store, const ArenaId& arena) {
  return {arena, store.id(), store.score().algorithm(), static_cast<uint8_t>(store.score().score_bytes())};
}

std::string arena_name(const Store& store, const ArenaId& arena) {
  return store.backend().shown_path(store.arena_path(arena));
}

Result<std::map<ArenaId, uint64_t>> list_arena_sizes(const Store& store) {
  VARVE_ASSIGN(const auto objects, store.backend().list_with_status(store.arenas_path()));
  std::map<ArenaId, uint64_t> sizes;
  for (const auto& [name, status] : objects) {
    if (const std::optional<ArenaId> id = parse_arena_file_name(name)) sizes[*id] = status.ok() ? status->bytes : 0;
  }
  return sizes;
}

Result<uint64_t> arena_bytes(const Store& store) {
  VARVE_ASSIGN(const auto sizes, list_arena_sizes(store));
  uint64_t sum = 0;
  for (const auto& [id, bytes] : sizes) sum += bytes;
  return sum;
}

Result<std::vector<ArenaId>> list_condemned(const Store& store) {
  return list_ids(store.backend(), store.condemned_path(), [](std::string_view name) -> std::optional<ArenaId> {
    const Result<ArenaId> id = ArenaId::parse(name);
    return id.ok() ? std::optional(*id) : std::nullopt;
  });
}

Status each_arena(const Store& store, std::span<const ArenaId> ids,
                  const std::function<Status(const ArenaId&, Result<std::shared_ptr<ArenaReader>>)>& visit) {
  const size_t at_once = store.backend().operations_at_once();
  while (!ids.empty()) {
    const std::span<const ArenaId> some = ids.first(std::min(ids.size(), at_once));
    std::vector<Result<std::shared_ptr<ArenaReader>>> readers(some.size(), std::shared_ptr<ArenaReader>());
    VARVE_TRY(parallel_for(some.size(), at_once, [&](size_t i) -> Status {
      readers[i] = store.arena(some[i]);
      return {};
    }));
    for (size_t i = 0; i < some.size(); ++i) VARVE_TRY(visit(some[i], std::move(readers[i])));
    ids = ids.subspan(some.size());
  }
  return {};
}

void open_ahead(const Store& store, const SetRecord& record) {
  if (store.backend().operations_at_once() == 1) return;
  std::vector<ArenaId> arenas;
  for (size_t i = 0; i < std::min(record.groups.size(), ArenaCache::kArenasMax / 2); ++i)
    arenas.push_back(record.groups[i].hint);
  each_arena(store, arenas, [](const ArenaId&, const Result<std::shared_ptr<ArenaReader>>&) {
    return Status();
  }).ignore("it is opened again");
}

}  // namespace varve
