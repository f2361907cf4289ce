#include "layout/zarr_folders.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "core/process.h"
#include "layout/file_window.h"

namespace varve {
namespace {

constexpr size_t kFoldersMax = 10'000;
/// How far down in groups an array may be, and its chunks below it.
constexpr size_t kZarrLevelsMax = 64;

bool looks_like_chunk(std::string_view name) {
  const auto is_part_of_chunk_name = [](char c) { return (c >= '0' && c <= '9') || c == '.'; };
  if (name.starts_with("c.")) name.remove_prefix(2);
  return name == "c" || (!name.empty() && std::all_of(name.begin(), name.end(), is_part_of_chunk_name));
}

bool exists(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

/// All of a small regular file; empty if it is none.
std::string read_small_file(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat info {};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
  if (static_cast<uint64_t>(info.st_size) > kZarrDescriptionBytesMax) return {};
  ByteVector contents(static_cast<size_t>(info.st_size));
  const Result<uint64_t> got = read_file_at(fd.get())(0, contents);
  return std::string(as_text(contents).substr(0, got.ok() ? *got : 0));
}

std::string join(const std::string& folder, std::string_view name) { return folder + "/" + std::string(name); }

/// The last component of a path, and what lies before it.
struct SplitPath {
  std::string folder, name;
};
SplitPath split_path(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {{}, path};
  return {path.substr(0, slash), path.substr(slash + 1)};
}

std::optional<ZarrArray> described_array(const std::string& folder) {
  if (const std::string text = read_small_file(join(folder, kZarr2ArrayFile)); !text.empty()) {
    if (Result<ZarrArray> array = parse_zarr2_array(text); array.ok()) return std::move(*array);
  }
  if (const std::string text = read_small_file(join(folder, kZarr3File)); !text.empty()) {
    if (Result<ZarrArray> array = parse_zarr3_array(text); array.ok()) return std::move(*array);
  }
  return std::nullopt;
}

/// The array's name in the outermost group that it is in.
std::string array_name(const std::string& array_folder) {
  SplitPath split = split_path(array_folder);
  if (split.name.empty() || split.name == "." || split.name == "..") return "/array";
  std::string name = "/" + split.name;
  for (size_t level = 0; level < kZarrLevelsMax && !split.folder.empty(); ++level) {
    const std::string group = split.folder;
    split = split_path(group);
    const SplitPath outer = split;
    const bool is_inner_group = !outer.folder.empty() &&
                                (exists(join(outer.folder, kZarr2GroupFile)) || exists(join(outer.folder, kZarr3File)));
    if (!is_inner_group) break;
    name.insert(0, "/" + outer.name);
  }
  return name;
}

}  // namespace

const ZarrFolders::Folder& ZarrFolders::look_at(const std::string& folder) {
  if (const auto found = folders_.find(folder); found != folders_.end()) return found->second;
  if (folders_.size() >= kFoldersMax) folders_.clear();
  Folder seen;
  seen.array = described_array(folder);
  if (seen.array) seen.name = array_name(folder);
  return folders_.emplace(folder, std::move(seen)).first->second;
}

std::optional<Layout> ZarrFolders::chunk_layout(const std::string& path, uint64_t file_bytes) {
  SplitPath split = split_path(path);
  std::string chunk;
  for (size_t level = 0; level < kZarrLevelsMax && !split.folder.empty() && looks_like_chunk(split.name); ++level) {
    chunk = chunk.empty() ? split.name : split.name + "/" + chunk;
    const Folder& folder = look_at(split.folder);
    if (folder.array) {
      if (!zarr_chunk_place(*folder.array, chunk)) return std::nullopt;
      return zarr_chunk_layout(*folder.array, folder.name, file_bytes);
    }
    split = split_path(split.folder);
  }
  return std::nullopt;
}

}  // namespace varve
