#include "watch/rank_folders.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "core/file_system.h"
#include "core/step_text.h"
#include "engine/scheme.h"

namespace varve {

namespace {
/// Folders whose names are alike but for the number at the end, by that.
using Siblings = std::map<uint64_t, std::string>;

/// What a name has before the digits at its end.
std::string_view stem_of(std::string_view name) {
  while (!name.empty() && std::isdigit(static_cast<unsigned char>(name.back())) != 0) name.remove_suffix(1);
  return name;
}

struct Numbered {
  std::map<std::string, Siblings, std::less<>> by_stem;  ///< that a pattern can say
  size_t count = 0;                                      ///< of all folders that end with a number, and are no times
};

Result<Numbered> look_at_numbered(const std::string& folder) {
  VARVE_ASSIGN(const std::vector<DirectoryEntry> entries, posix_file_system().list(folder));
  Numbered numbered;
  std::set<std::string, std::less<>> twice;
  for (const DirectoryEntry& entry : entries) {
    const std::string_view stem = stem_of(entry.name);
    if (!entry.is_directory || stem.size() == entry.name.size() || parse_step(entry.name)) continue;
    ++numbered.count;
    const std::optional<uint64_t> number = parse_step(std::string_view(entry.name).substr(stem.size()));
    if (!number || stem.find_first_of("*?{") != std::string_view::npos) continue;
    if (!numbered.by_stem[std::string(stem)].emplace(*number, entry.name).second) twice.emplace(stem);
  }
  for (const std::string& stem : twice) numbered.by_stem.erase(stem);
  return numbered;
}

/// The folders in it that are called as numbers or times; none of what has gone meanwhile.
Result<std::set<std::string>> times_in(const std::string& folder) {
  const Result<std::vector<DirectoryEntry>> entries = posix_file_system().list(folder);
  std::set<std::string> times;
  if (entries.status().code() == StatusCode::not_found) return times;
  VARVE_TRY(entries.status());
  for (const DirectoryEntry& entry : *entries) {
    if (entry.is_directory && parse_step(entry.name)) times.insert(entry.name);
  }
  return times;
}

Result<bool> are_ranks(const std::string& folder, const Siblings& siblings) {
  if (!names_rank(siblings.begin()->second)) return false;
  std::set<std::string> common;
  for (const auto& [number, name] : siblings) {
    VARVE_ASSIGN(std::set<std::string> times, times_in(join_path(folder, name)));
    if (number != siblings.begin()->first)
      std::erase_if(times, [&](const auto& time) { return !common.contains(time); });
    common = std::move(times);
    if (common.empty()) return false;
  }
  return siblings.size() > 1 || std::any_of(common.begin(), common.end(), is_name_of_time);
}
}  // namespace

Result<std::optional<RankFolders>> find_rank_folders(const std::string& folder) {
  VARVE_ASSIGN(const Numbered numbered, look_at_numbered(folder));
  std::optional<RankFolders> found;
  for (const auto& [stem, siblings] : numbered.by_stem) {
    VARVE_ASSIGN(const bool ranks, are_ranks(folder, siblings));
    if (!ranks) continue;
    if (found) return std::optional<RankFolders>();  // which of them?
    found.emplace();
    VARVE_ASSIGN(found->pattern, SetPattern::parse(stem + "{rank}/{time}/**"));
    found->count = siblings.size();
    found->are_all_sets = numbered.count == siblings.size();
  }
  return found;
}

}  // namespace varve
