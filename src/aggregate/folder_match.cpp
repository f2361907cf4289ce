#include "aggregate/folder_match.h"

#include <algorithm>
#include <map>

#include "aggregate/inspect.h"
#include "aggregate/set_files.h"
#include "aggregate/source_reader.h"

namespace varve {

namespace {
bool same_facts(const TreeFile& stored, const SourceFile& file) {
  if (stored.type != file.type) return false;
  switch (file.type) {
    case FileType::directory: return true;
    case FileType::symlink: return stored.link_target == file.link_target;
    case FileType::regular: break;
  }
  return stored.bytes == file.bytes && stored.mode == file.mode && stored.modified_s == file.modified_s &&
         stored.modified_ns == file.modified_ns;
}

std::map<std::string_view, uint32_t> places_of(const std::vector<SourceFile>& files) {
  std::map<std::string_view, uint32_t> places;
  for (uint32_t i = 0; i < files.size(); ++i) places.emplace(files[i].path, i);
  return places;
}
}  // namespace

Result<FolderMatch> match_folder(const Store& store, const SetRecord& record, const std::vector<SourceFile>& files) {
  const std::map<std::string_view, uint32_t> places = places_of(files);
  size_t equal = 0;
  bool more = false, differs = false;
  const Status seen = for_each_leaf(store, record, [&](const Leaf& leaf) -> Status {
    for (const TreeFile& stored : leaf.files) {
      const auto place = places.find(stored.path);
      if (place == places.end()) {
        more = true;
      } else if (same_facts(stored, files[place->second])) {
        ++equal;
      } else {
        differs = true;
      }
    }
    return {};
  });
  VARVE_TRY(seen);
  if (differs || equal < places.size()) return FolderMatch::differs;
  return more ? FolderMatch::part : FolderMatch::whole;
}

Status check_saved(const Store& store, const SetRecord& record, const std::string& folder,
                   const std::vector<SourceFile>& files, ProgressSink& progress) {
  const std::map<std::string_view, uint32_t> places = places_of(files);
  SourceReader reader(folder, files);
  ByteVector own;
  size_t equal = 0;
  auto check_file = [&](const Leaf& leaf, const TreeFile& stored, uint32_t place) -> Status {
    const Status differs = Status::corrupt("the set does not have what the file has", join_path(folder, stored.path));
    if (!same_facts(stored, files[place])) return differs;
    if (stored.type != FileType::regular) return {};
    uint64_t at = 0;
    return read_leaf_file(store, leaf, stored, [&](ByteSpan part) -> Status {
      if (progress.cancelled()) return Status::cancelled();
      own.resize(part.size());
      VARVE_TRY(reader.read(place, at, own));
      at += part.size();
      progress.advance(part.size());
      return std::equal(part.begin(), part.end(), own.begin()) ? Status() : differs;
    });
  };
  const Status checked = for_each_leaf(store, record, [&](const Leaf& leaf) -> Status {
    for (const TreeFile& stored : leaf.files) {
      const auto place = places.find(stored.path);
      if (place == places.end()) continue;
      VARVE_TRY(check_file(leaf, stored, place->second));
      ++equal;
    }
    return {};
  });
  VARVE_TRY(checked);
  if (equal < places.size()) return Status::corrupt("the set lacks some of the folder's files", folder);
  return {};
}

}  // namespace varve
