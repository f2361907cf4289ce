#include "runtime/store_level.h"

#include <filesystem>

#include "core/throttled_file_system.h"

namespace varve {

namespace {
/// Two jobs, or two ranks, may do it at once.
Status create_in_folder(FileSystem& files, const std::string& path) {
  Status there = Store::open(files, path).status();
  if (there.code() != StatusCode::not_found) return there;
  const Status created = Store::create(files, path);
  return created.code() == StatusCode::already_exists ? Status() : created;
}

Status create_on_servers(StorePlace& place) {
  const Status there = open_store(place).status();
  if (there.code() != StatusCode::not_found) return there;
  const Status created = varve::create_store(place);
  return created.code() == StatusCode::already_exists ? Status() : created;
}

std::string canonical(const std::string& path) {
  std::error_code error;
  const std::filesystem::path found = std::filesystem::canonical(path, error);
  return error ? path : found.string();
}
}  // namespace

std::string StoreLevel::path_of(const LevelSpec& spec, const std::string& node) {
  const bool named = spec.kind == LevelSpec::Kind::local && !node.empty();
  return named ? join_path(spec.place, "node-" + node) : spec.place;
}

Status StoreLevel::prepare_parent(FileSystem& files, const LevelSpec& spec, const std::string& path) {
  // Store::create() makes one folder.
  return path == spec.place ? Status() : files.create_directory(spec.place);
}

Result<std::string> StoreLevel::prepare(FileSystem& files, const LevelSpec& spec, const std::string& path) {
  if (spec.is_on_servers()) {
    VARVE_ASSIGN(const std::unique_ptr<StorePlace> place, open_location(spec.name()));
    VARVE_TRY(create_on_servers(*place).with_context(spec.name()));
    return spec.name();
  }
  VARVE_TRY(prepare_parent(files, spec, path));
  VARVE_TRY(create_in_folder(files, path));
  return canonical(path);
}

Result<std::unique_ptr<StoreLevel>> StoreLevel::open(FileSystem& files, const LevelSpec& spec, const std::string& path,
                                                     Clock& clock) {
  std::unique_ptr<StorePlace> place;
  if (spec.is_on_servers()) {
    VARVE_ASSIGN(place, open_location(spec.name()));
  }
  FileSystem& where = place ? place->fs() : files;
  ChunkLookup* const chunks = place ? place->chunk_lookup() : nullptr;
  const ArenaSpread spread = place ? place->spread() : ArenaSpread();
  const std::string root = place ? place->path() : path;
  std::unique_ptr<StoreLevel> level(new StoreLevel(spec, std::move(place), where, root));
  VARVE_ASSIGN(level->store_, Store::open(where, root, chunks, spread));
  if (spec.bytes_per_second) {
    level->throttled_ =
        std::make_unique<ThrottledFileSystem>(where, static_cast<double>(*spec.bytes_per_second), clock);
    VARVE_ASSIGN(level->slowed_, Store::open(*level->throttled_, root, chunks, spread));
  }
  return level;
}

}  // namespace varve
