#include "store/spread_file_system.h"

#include <set>
#include <utility>

#include "core/forwarding_file_system.h"

namespace varve {

namespace {
constexpr std::string_view kArenas = "arenas";

bool is_arenas_folder(const std::string& path) { return base_name(path) == kArenas; }

/// Reads an arena that may be moved to another place meanwhile: it is the same there.
class MovableFile final : public ForwardingFile {
 public:
  using Reopen = std::function<Result<std::unique_ptr<File>>()>;
  MovableFile(std::unique_ptr<File> inner, Reopen reopen)
      : ForwardingFile(std::move(inner)), reopen_(std::move(reopen)) {}

  Result<size_t> read_at(uint64_t offset, MutableByteSpan into) override {
    Result<size_t> read = ForwardingFile::read_at(offset, into);
    if (read.status().code() != StatusCode::not_found) return read;
    VARVE_ASSIGN(const std::unique_ptr<File> elsewhere, reopen_());
    return elsewhere->read_at(offset, into);
  }

 private:
  const Reopen reopen_;
};
}  // namespace

SpreadFileSystem::SpreadFileSystem(std::vector<FileSystem*> places)
    : places_(std::move(places)), spread_(static_cast<uint32_t>(places_.size())) {}

std::optional<uint32_t> SpreadFileSystem::place_of(const std::string& path) const {
  if (!is_arenas_folder(parent_path(path))) return std::nullopt;
  const std::string name = base_name(path);
  const Result<ArenaId> arena = ArenaId::parse(std::string_view(name).substr(0, name.find('.')));
  if (!arena.ok()) return std::nullopt;
  return spread_.place_of(*arena);
}

FileSystem& SpreadFileSystem::home_of(const std::string& path) const { return *places_[place_of(path).value_or(0)]; }

template <class T>
Result<T> SpreadFileSystem::ask(const std::string& path, const std::function<Result<T>(FileSystem&)>& question) const {
  const std::optional<uint32_t> place = place_of(path);
  Result<T> answer = question(*places_[place.value_or(0)]);
  if (!place || answer.status().code() != StatusCode::not_found) return answer;
  for (uint32_t other = 0; other < places_.size(); ++other) {
    if (other == *place) continue;
    Result<T> found = question(*places_[other]);
    // A place that cannot answer may be the one that has it.
    if (found.status().code() != StatusCode::not_found) return found;
  }
  return answer;
}

Result<std::unique_ptr<File>> SpreadFileSystem::open_read(const std::string& path) {
  auto open = [this, path] {
    return ask<std::unique_ptr<File>>(path, [&](FileSystem& place) { return place.open_read(path); });
  };
  VARVE_ASSIGN(std::unique_ptr<File> file, open());
  if (!place_of(path)) return file;
  return std::unique_ptr<File>(std::make_unique<MovableFile>(std::move(file), open));
}

Result<std::unique_ptr<File>> SpreadFileSystem::create(const std::string& path, CreateOptions options) {
  return home_of(path).create(path, options);
}

Result<std::unique_ptr<FileMapping>> SpreadFileSystem::map(const std::string& path) {
  return ask<std::unique_ptr<FileMapping>>(path, [&](FileSystem& place) { return place.map(path); });
}

Status SpreadFileSystem::create_directory(const std::string& path) {
  if (!is_arenas_folder(path)) return places_.front()->create_directory(path);
  for (FileSystem* place : places_) VARVE_TRY(place->create_directory(path));
  return {};
}

Status SpreadFileSystem::rename(const std::string& from, const std::string& to) {
  return home_of(from).rename(from, to);
}

Status SpreadFileSystem::rename_no_replace(const std::string& from, const std::string& to) {
  return home_of(from).rename_no_replace(from, to);
}

Status SpreadFileSystem::remove(const std::string& path) {
  if (!place_of(path)) return places_.front()->remove(path);
  Status failure = Status::not_found("there is no such arena", path);
  bool removed = false;
  for (FileSystem* place : places_) {
    const Status outcome = place->remove(path);
    removed = removed || outcome.ok();
    if (!outcome.ok() && outcome.code() != StatusCode::not_found) failure = outcome;
  }
  return removed && failure.code() == StatusCode::not_found ? Status() : failure;
}

Status SpreadFileSystem::remove_directory(const std::string& path) { return places_.front()->remove_directory(path); }

Status SpreadFileSystem::sync_directory(const std::string& path) {
  if (!is_arenas_folder(path)) return places_.front()->sync_directory(path);
  for (FileSystem* place : places_) VARVE_TRY(place->sync_directory(path));
  return {};
}

Status SpreadFileSystem::touch(const std::string& path) { return home_of(path).touch(path); }

Result<std::vector<DirectoryEntry>> SpreadFileSystem::list(const std::string& path) {
  if (!is_arenas_folder(path)) return places_.front()->list(path);
  std::vector<DirectoryEntry> all;
  std::set<std::string> names;
  for (FileSystem* place : places_) {
    VARVE_ASSIGN(std::vector<DirectoryEntry> entries, place->list(path));
    for (DirectoryEntry& entry : entries) {
      if (names.insert(entry.name).second) all.push_back(std::move(entry));
    }
  }
  return all;
}

Result<FileStatus> SpreadFileSystem::stat(const std::string& path) {
  return ask<FileStatus>(path, [&](FileSystem& place) { return place.stat(path); });
}

}  // namespace varve
