#include "watch/set_pattern.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "core/file_system.h"
#include "engine/scheme.h"
#include "engine/source.h"
#include "watch/originals.h"

namespace varve {

namespace {
constexpr std::string_view kStep = "{step}", kRank = "{rank}";
constexpr size_t kStarsMax = 8;  ///< in a component: what matching costs at worst is bounded by it

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::vector<std::string_view> split(std::string_view path) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t slash = path.find('/');
    parts.push_back(path.substr(0, slash));
    if (slash == std::string_view::npos) return parts;
    path.remove_prefix(slash + 1);
  }
}

std::optional<uint64_t> number_of(std::string_view digits) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

/// Matches one component, as much as possible with the first stars.
class ComponentMatcher {
 public:
  ComponentMatcher(std::string_view name, SetPattern::Match& match) : name_(name), match_(match) {}

  bool matches(std::string_view pattern, size_t at) {
    if (pattern.empty()) return at == name_.size();
    if (pattern.starts_with(kStep)) return number(pattern.substr(kStep.size()), at, true);
    if (pattern.starts_with(kRank)) return number(pattern.substr(kRank.size()), at, false);
    if (pattern[0] == '*') {
      for (size_t end = name_.size() + 1; end-- > at;) {
        if (matches(pattern.substr(1), end)) return true;
      }
      return false;
    }
    if (at == name_.size() || (pattern[0] != '?' && pattern[0] != name_[at])) return false;
    return matches(pattern.substr(1), at + 1);
  }

 private:
  bool number(std::string_view rest, size_t at, bool step) {
    if (at > 0 && is_digit(name_[at - 1])) return false;
    size_t end = at;
    while (end < name_.size() && is_digit(name_[end])) ++end;
    const std::optional<uint64_t> value = number_of(name_.substr(at, end - at));
    if (!value || !matches(rest, end)) return false;
    if (step) {
      match_.step = *value;
    } else {
      match_.rank = *value;
    }
    return true;
  }

  const std::string_view name_;
  SetPattern::Match& match_;
};

size_t occurrences(std::string_view text, std::string_view what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, at + what.size())) ++count;
  return count;
}
}  // namespace

Result<SetPattern> SetPattern::parse(std::string_view text) {
  const auto wrong = [&](const char* what) {
    return Status::invalid_argument(what, std::string(text), "for example '*{step}/**' or 'restart.{step}.{rank}'");
  };
  SetPattern pattern;
  pattern.components_.clear();
  pattern.folder_depth_ = 0;
  size_t steps = 0, ranks = 0;
  for (const std::string_view component : split(text)) {
    if (component.empty() || component == "." || component == "..") return wrong("a pattern's components have names");
    if (!pattern.components_.empty() && pattern.components_.back() == "**") return wrong("** comes last in a pattern");
    if (occurrences(component, "*") > kStarsMax) return wrong("too many stars");
    steps += occurrences(component, kStep);
    ranks += occurrences(component, kRank);
    pattern.components_.emplace_back(component);
    if (steps > 0 && pattern.folder_depth_ == 0) pattern.folder_depth_ = pattern.components_.size();
  }
  if (steps != 1) return wrong("a pattern has one {step}");
  if (ranks > 1) return wrong("a pattern has one {rank} at most");
  pattern.has_rank_ = ranks == 1;
  if (pattern.folder_depth_ == pattern.components_.size()) pattern.folder_depth_ = 0;
  return pattern;
}

std::optional<SetPattern::Match> SetPattern::match_components(const std::vector<std::string_view>& path,
                                                              size_t count) const {
  Match match;
  for (size_t i = 0; i < count; ++i) {
    if (!ComponentMatcher(path[i], match).matches(components_[i], 0)) return std::nullopt;
  }
  return match;
}

std::optional<SetPattern::Match> SetPattern::match(std::string_view path) const {
  const std::vector<std::string_view> parts = split(path);
  const bool open_ended = components_.back() == "**";
  const size_t named = open_ended ? components_.size() - 1 : components_.size();
  if (open_ended ? parts.size() <= named : parts.size() != named) return std::nullopt;
  return match_components(parts, named);
}

std::optional<uint64_t> SetPattern::folder_step(std::string_view path) const {
  const std::vector<std::string_view> parts = split(path);
  if (folder_depth_ == 0 || parts.size() != folder_depth_) return std::nullopt;
  const std::optional<Match> match = match_components(parts, folder_depth_);
  return match ? std::optional(match->step) : std::nullopt;
}

std::string SetPattern::text() const {
  std::string text;
  for (const std::string& component : components_) text.append(text.empty() ? "" : "/").append(component);
  return text;
}

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
