#include "watch/set_finder.h"

#include <algorithm>
#include <map>

#include "aggregate/rank_order.h"
#include "aggregate/source_tree.h"
#include "core/file_system.h"
#include "watch/removing_folder.h"

namespace varve {

namespace {
/// A path below the watched folder of what lies in a set's folder.
std::string_view below(const std::string& folder, std::string_view path) {
  path.remove_prefix(std::min(path.size(), folder.size() + 1));
  return path;
}

Result<std::vector<SourceFile>> look_at_files(const std::string& folder, ProgressSink& progress) {
  VARVE_ASSIGN(std::vector<SourceFile> files, scan_source_tree(folder, progress));
  if (!put_back_unremoved(folder, files)) return files;
  return scan_source_tree(folder, progress);
}
}  // namespace

Result<std::vector<FoundSet>> SetFinder::find(ProgressSink& progress) const {
  if (pattern_.folder_depth() == 0) return find_side_by_side(progress);
  VARVE_ASSIGN(std::vector<FoundSet> folders, find_folders());
  std::vector<FoundSet> sets;
  for (FoundSet& set : folders) {
    const Status seen = look_into(set, progress);
    if (seen.code() == StatusCode::not_found) continue;
    VARVE_TRY(seen);
    sets.push_back(std::move(set));
  }
  return sets;
}

Result<std::vector<FoundSet>> SetFinder::find_folders() const {
  std::vector<FoundSet> sets;
  if (pattern_.folder_depth() > 0) VARVE_TRY(add_folders("", 1, sets));
  std::sort(sets.begin(), sets.end(), [](const FoundSet& a, const FoundSet& b) {
    return std::tie(a.step, a.folder) < std::tie(b.step, b.folder);
  });
  return sets;
}

Status SetFinder::add_folders(const std::string& path, size_t depth, std::vector<FoundSet>& sets) const {
  Result<std::vector<DirectoryEntry>> entries = posix_file_system().list(join_path(folder_, path));
  if (depth > 1 && entries.status().code() == StatusCode::not_found) return {};
  VARVE_TRY(entries.status());
  for (const DirectoryEntry& entry : *entries) {
    if (!entry.is_directory) continue;
    const std::string inner = path.empty() ? entry.name : join_path(path, entry.name);
    if (depth < pattern_.folder_depth()) {
      VARVE_TRY(add_folders(inner, depth + 1, sets));
    } else if (const std::optional<uint64_t> step = pattern_.folder_step(inner)) {
      sets.push_back({join_path(folder_, inner), *step, {}});
    }
  }
  return {};
}

Status SetFinder::look_into(FoundSet& set, ProgressSink& progress) const {
  VARVE_ASSIGN(set.files, look_at_files(set.folder, progress));
  if (!pattern_.whole_folder()) {
    std::erase_if(set.files, [&](SourceFile& file) {
      const std::string whole = join_path(set.folder, file.path);
      const std::optional<SetPattern::Match> match = pattern_.match(below(folder_, whole));
      if (match && match->rank) file.rank = static_cast<int64_t>(*match->rank);
      return !match || file.type == FileType::directory;
    });
  }
  return assign(set.files);
}

Result<std::vector<FoundSet>> SetFinder::find_side_by_side(ProgressSink& progress) const {
  VARVE_ASSIGN(std::vector<SourceFile> files, look_at_files(folder_, progress));
  std::map<uint64_t, std::vector<SourceFile>> steps;
  for (SourceFile& file : files) {
    if (file.type == FileType::directory) continue;
    const std::optional<SetPattern::Match> match = pattern_.match(file.path);
    if (!match) continue;
    if (match->rank) file.rank = static_cast<int64_t>(*match->rank);
    steps[match->step].push_back(std::move(file));
  }
  std::vector<FoundSet> sets;
  for (auto& [step, found] : steps) {
    VARVE_TRY(assign(found));
    sets.push_back({folder_, step, std::move(found)});
  }
  return sets;
}

Status SetFinder::assign(std::vector<SourceFile>& files) const {
  return pattern_.has_rank() ? Status() : assign_ranks(files, rank_regex_);
}

}  // namespace varve
