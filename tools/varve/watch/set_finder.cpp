#include "watch/set_finder.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "core/file_system.h"
#include "engine/restore_target.h"
#include "engine/save.h"
#include "engine/scheme.h"
#include "watch/originals.h"
#include "watch/rank_folders.h"

namespace varve {

namespace {
/// A path below the watched folder of what lies in a set's folder.
std::string_view below(const std::string& folder, std::string_view path) {
  path.remove_prefix(std::min(path.size(), folder.size() + 1));
  return path;
}

/// What is no part of any set.
bool is_note(std::string_view name) { return is_removal_note(name) || name == kRestoringNote; }

bool is_being_removed(const SourceFile& file) { return base_name(file.path) == kRemovingFolder; }
}  // namespace

bool is_below(const std::string& path, const std::string& folder) {
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

Result<std::vector<SourceFile>> SetFinder::look_at_files(const std::string& folder, size_t depth_max,
                                                         ProgressSink& progress) const {
  VARVE_ASSIGN(std::vector<SourceFile> files, scan_source_tree(folder, progress, depth_max));
  if (!looks_only_ && std::any_of(files.begin(), files.end(), is_being_removed)) {
    if (depth_max == 1) {
      VARVE_ASSIGN(files, scan_source_tree(folder, progress, 2));
    }
    put_back_unremoved(folder, files);
    VARVE_ASSIGN(files, scan_source_tree(folder, progress, depth_max));
  }
  std::erase_if(files, [](const SourceFile& file) { return is_note(base_name(file.path)); });
  return files;
}

Result<std::set<std::string>> SetFinder::find_paths() const {
  std::set<std::string> paths;
  VARVE_TRY(visit(pattern().named_components(), !pattern().open_ended(), [&](const std::string& path) {
    paths.insert(path);
    return Status();
  }));
  return paths;
}

Result<std::vector<std::string>> SetFinder::look_for_rank_folders() {
  std::vector<std::string> others;
  VARVE_ASSIGN(std::optional<RankFolders> found, find_rank_folders(folder_));
  if (!found) return others;
  if (!found->are_all_sets) others.push_back(pattern().text());
  patterns_ = {std::move(found->pattern)};
  rank_folder_count_ = found->count;
  has_chosen_ = true;
  return others;
}

Result<std::vector<std::string>> SetFinder::choose_pattern() {
  std::vector<std::string> others;
  if (has_chosen_) return others;
  if (!pattern().is_said()) return look_for_rank_folders();
  if (patterns_.size() == 1) return others;
  std::optional<size_t> first;
  std::set<std::string> taken;
  // A folder that is taken is taken with all that is in it.
  const auto is_taken = [&](const std::string& path) {
    for (std::string at = path; at != "."; at = parent_path(at)) {
      if (taken.contains(at)) return true;
    }
    return false;
  };
  for (chosen_ = 0; chosen_ < patterns_.size(); ++chosen_) {
    Result<std::set<std::string>> found = find_paths();
    if (!found.ok()) {
      chosen_ = 0;
      return found.status();
    }
    if (found->empty()) continue;
    if (!first) {
      first = chosen_;
      taken = std::move(*found);
    } else if (!pattern().stands_back() && !std::all_of(found->begin(), found->end(), is_taken)) {
      others.push_back(pattern().text());
    }
  }
  chosen_ = first.value_or(0);
  has_chosen_ = first.has_value();
  return others;
}

Result<std::vector<FoundSet>> SetFinder::find(ProgressSink& progress) const {
  if (pattern().folder_depth() == 0) return find_files_of_sets(progress);
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
  const size_t depth = pattern().folder_depth();
  if (depth == 0) return sets;
  std::vector<std::string> paths;
  VARVE_TRY(visit(depth, false, [&](const std::string& path) {
    paths.push_back(path);
    return Status();
  }));
  among_times_ = among_times_ || std::any_of(paths.begin(), paths.end(), is_name_of_time);
  for (const std::string& path : paths) {
    if (const std::optional<uint64_t> step = pattern().folder_step(path, among_times_))
      sets.push_back({join_path(folder_, path), *step});
  }
  std::sort(sets.begin(), sets.end(), [](const FoundSet& a, const FoundSet& b) {
    return std::tie(a.step, a.folder) < std::tie(b.step, b.folder);
  });
  return sets;
}

Status SetFinder::visit(size_t depth, bool files, const VisitFolder& visitor) const {
  return visit_below("", 1, depth, files, visitor);
}

Status SetFinder::visit_below(const std::string& path, size_t depth, size_t wanted, bool files,
                              const VisitFolder& visitor) const {
  Result<std::vector<DirectoryEntry>> entries = posix_file_system().list(join_path(folder_, path));
  if (depth > 1 && entries.status().code() == StatusCode::not_found) return {};
  VARVE_TRY(entries.status());
  for (const DirectoryEntry& entry : *entries) {
    if (entry.is_directory == (files && depth == wanted) || !pattern().may_lead_on(entry.name, depth)) continue;
    if (is_note(entry.name)) continue;
    const std::string inner = path.empty() ? entry.name : join_path(path, entry.name);
    VARVE_TRY(depth == wanted ? visitor(inner) : visit_below(inner, depth + 1, wanted, files, visitor));
  }
  return {};
}

Status SetFinder::look_into(FoundSet& set, ProgressSink& progress) const {
  VARVE_ASSIGN(set.files, look_at_files(set.folder, SIZE_MAX, progress));
  if (!pattern().whole_folder()) {
    std::erase_if(set.files, [&](SourceFile& file) {
      const std::string whole = join_path(set.folder, file.path);
      const std::optional<SetPattern::Match> match = pattern().match(below(folder_, whole));
      if (match && match->rank) file.rank = static_cast<int64_t>(*match->rank);
      return !match || file.type == FileType::directory;
    });
  }
  return assign(set.files);
}

Result<std::vector<FoundSet>> SetFinder::find_files_of_sets(ProgressSink& progress) const {
  const bool open_ended = pattern().open_ended();
  std::map<uint64_t, FoundSet> sets;
  const auto look = [&](const std::string& path) -> Status {
    const std::string folder = path.empty() ? folder_ : join_path(folder_, path);
    Result<std::vector<SourceFile>> files = look_at_files(folder, open_ended ? SIZE_MAX : 1, progress);
    if (!path.empty() && files.status().code() == StatusCode::not_found) return {};
    VARVE_TRY(files.status());
    for (SourceFile& file : *files) {
      if (!path.empty()) file.path = join_path(path, file.path);
    }
    if (open_ended) {
      VARVE_ASSIGN(NamedSource itself, look_at_source(folder));
      itself.self.path = path;
      files->push_back(std::move(itself.self));
    }
    for (SourceFile& file : *files) {
      const bool is_folder = file.type == FileType::directory;
      if (is_folder && !open_ended) continue;
      const std::optional<SetPattern::Match> match =
          pattern().match(is_folder ? join_path(file.path, "anything") : file.path);
      if (!match) continue;
      if (match->rank && !is_folder) file.rank = static_cast<int64_t>(*match->rank);
      FoundSet& set = sets[match->step.value_or(0)];
      if (!match->step) set.step = std::max(set.step, static_cast<uint64_t>(std::max<int64_t>(file.modified_s, 0)));
      set.files.push_back(std::move(file));
    }
    return {};
  };
  const size_t folders = pattern().named_components() - (open_ended ? 0 : 1);
  VARVE_TRY(folders == 0 ? look("") : visit(folders, false, look));
  std::vector<FoundSet> found;
  for (auto& [step, set] : sets) {
    set.folder = folder_;
    set.goes_by_time = !pattern().has_step();
    if (!set.goes_by_time) set.step = step;
    std::sort(set.files.begin(), set.files.end(),
              [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
    VARVE_TRY(assign(set.files));
    found.push_back(std::move(set));
  }
  return found;
}

Status SetFinder::assign(std::vector<SourceFile>& files) const {
  return pattern().has_rank() ? Status() : assign_ranks(files, rank_regex_, rank_count_);
}

}  // namespace varve
