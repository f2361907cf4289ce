#include "store/spread_file_system.h"

#include <functional>
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

SpreadFileSystem::SpreadFileSystem(std::vector<SpreadPlace> places)
    : places_(std::move(places)), root_(places_.front().path), spread_(static_cast<uint32_t>(places_.size())) {}

std::optional<uint32_t> SpreadFileSystem::place_of(const std::string& path) const {
  if (!is_arenas_folder(parent_path(path))) return std::nullopt;
  const std::string name = base_name(path);
  const Result<ArenaId> arena = ArenaId::parse(std::string_view(name).substr(0, name.find('.')));
  if (!arena.ok()) return std::nullopt;
  return spread_.place_of(*arena);
}

const SpreadPlace& SpreadFileSystem::home_of(const std::string& path) const {
  return places_[place_of(path).value_or(0)];
}

std::string SpreadFileSystem::at(const SpreadPlace& place, const std::string& path) const {
  return path.starts_with(root_) ? place.path + path.substr(root_.size()) : path;
}

template <class T, class Question>
Result<T> SpreadFileSystem::ask(const std::string& path, const Question& question) const {
  const std::optional<uint32_t> home = place_of(path);
  auto ask_one = [&](const SpreadPlace& place) -> Result<T> { return question(*place.fs, at(place, path)); };
  Result<T> answer = ask_one(places_[home.value_or(0)]);
  if (!home || answer.status().code() != StatusCode::not_found) return answer;
  for (uint32_t other = 0; other < places_.size(); ++other) {
    if (other == *home) continue;
    Result<T> found = ask_one(places_[other]);
    // A place that cannot answer may be the one that has it.
    if (found.status().code() != StatusCode::not_found) return found;
  }
  return answer;
}

Result<std::unique_ptr<File>> SpreadFileSystem::open_read(const std::string& path) {
  auto open = [this, path] {
    return ask<std::unique_ptr<File>>(path,
                                      [](FileSystem& fs, const std::string& there) { return fs.open_read(there); });
  };
  VARVE_ASSIGN(std::unique_ptr<File> file, open());
  if (!place_of(path)) return file;
  return std::unique_ptr<File>(std::make_unique<MovableFile>(std::move(file), open));
}

Result<std::unique_ptr<File>> SpreadFileSystem::create(const std::string& path, CreateOptions options) {
  const SpreadPlace& home = home_of(path);
  return home.fs->create(at(home, path), options);
}

Result<std::unique_ptr<FileMapping>> SpreadFileSystem::map(const std::string& path) {
  return ask<std::unique_ptr<FileMapping>>(path,
                                           [](FileSystem& fs, const std::string& there) { return fs.map(there); });
}

Status SpreadFileSystem::create_directory(const std::string& path) {
  for (const SpreadPlace& place : places_) {
    VARVE_TRY(place.fs->create_directory(at(place, path)));
    if (!is_arenas_folder(path)) break;
  }
  return {};
}

Status SpreadFileSystem::rename(const std::string& from, const std::string& to) {
  const SpreadPlace& home = home_of(from);
  return home.fs->rename(at(home, from), at(home, to));
}

Status SpreadFileSystem::rename_no_replace(const std::string& from, const std::string& to) {
  const SpreadPlace& home = home_of(from);
  return home.fs->rename_no_replace(at(home, from), at(home, to));
}

Status SpreadFileSystem::remove(const std::string& path) {
  if (!place_of(path)) return places_.front().fs->remove(at(places_.front(), path));
  Status failure = Status::not_found("there is no such arena", path);
  bool removed = false;
  for (const SpreadPlace& place : places_) {
    const Status outcome = place.fs->remove(at(place, path));
    removed = removed || outcome.ok();
    if (!outcome.ok() && outcome.code() != StatusCode::not_found) failure = outcome;
  }
  return removed && failure.code() == StatusCode::not_found ? Status() : failure;
}

Status SpreadFileSystem::remove_directory(const std::string& path) {
  return places_.front().fs->remove_directory(at(places_.front(), path));
}

Status SpreadFileSystem::sync_directory(const std::string& path) {
  for (const SpreadPlace& place : places_) {
    VARVE_TRY(place.fs->sync_directory(at(place, path)));
    if (!is_arenas_folder(path)) break;
  }
  return {};
}

Status SpreadFileSystem::touch(const std::string& path) {
  const SpreadPlace& home = home_of(path);
  return home.fs->touch(at(home, path));
}

Result<std::vector<DirectoryEntry>> SpreadFileSystem::list(const std::string& path) {
  std::vector<DirectoryEntry> all;
  std::set<std::string> names;
  for (const SpreadPlace& place : places_) {
    VARVE_ASSIGN(std::vector<DirectoryEntry> entries, place.fs->list(at(place, path)));
    for (DirectoryEntry& entry : entries) {
      if (names.insert(entry.name).second) all.push_back(std::move(entry));
    }
    if (!is_arenas_folder(path)) break;
  }
  return all;
}

Result<FileStatus> SpreadFileSystem::stat(const std::string& path) {
  return ask<FileStatus>(path, [](FileSystem& fs, const std::string& there) { return fs.stat(there); });
}

}  // namespace varve
