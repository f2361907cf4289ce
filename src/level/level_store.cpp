#include "level/level_store.h"

#include <filesystem>

#include "core/throttled_file_system.h"

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
  return path == spec.place ? Status() : files.create_directory(spec.place);
}

Result<std::string> LevelStore::prepare(FileSystem& files, const LevelSpec& spec, const std::string& path,
                                        const std::string& key_file) {
  if (spec.is_on_servers()) {
    VARVE_ASSIGN(const std::unique_ptr<StorePlace> place, open_location(spec.name(), {.key_file = key_file}));
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
                                                     const std::string& key_file, Clock& clock) {
  std::unique_ptr<StorePlace> place;
  if (spec.is_on_servers()) {
    VARVE_ASSIGN(place, open_location(spec.name(), {.key_file = key_file}));
  }
  FileSystem& where = place ? place->fs() : files;
  ChunkLookup* const chunks = place ? place->chunk_lookup() : nullptr;
  const ArenaSpread spread = place ? place->spread() : ArenaSpread();
  const std::string root = place ? place->path() : path;
  std::unique_ptr<LevelStore> level(new LevelStore(std::move(place)));
  VARVE_ASSIGN(level->store_, Store::open(where, root, chunks, spread));
  if (spec.bytes_per_second) {
    level->throttled_ =
        std::make_unique<ThrottledFileSystem>(where, static_cast<double>(*spec.bytes_per_second), clock);
    VARVE_ASSIGN(level->slowed_, Store::open(*level->throttled_, root, chunks, spread));
  }
  return level;
}

}  // namespace varve
