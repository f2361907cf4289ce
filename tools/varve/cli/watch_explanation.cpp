#include "cli/watch_explanation.h"

#include <fmt/format.h>

#include <filesystem>
#include <set>

#include "cli/json.h"
#include "cli/save_command.h"
#include "cli/text.h"
#include "core/step_text.h"
#include "engine/scheme.h"

namespace varve::cli {

namespace {
constexpr size_t kNamesTold = 3;

struct Explanation {
  std::string folder, job;
  std::vector<FoundSet> sets{};
  size_t rank_folder_count = 0;  ///< SetFinder::rank_folder_count()
  size_t file_count = 0, taken_count = 0;
  std::vector<std::string> left{};  ///< some of the files that belong to no set
};

size_t rank_count_of(const FoundSet& set) {
  std::set<int64_t> ranks;
  for (const SourceFile& file : set.files) {
    if (file.rank >= 0) ranks.insert(file.rank);
  }
  return ranks.size();
}

Result<Explanation> look(const SetFinder& finder, const std::string& job) {
  Explanation seen{.folder = finder.folder(), .job = job, .rank_folder_count = finder.rank_folder_count()};
  VARVE_ASSIGN(seen.sets, finder.find(null_progress()));
  std::set<std::string> taken;
  for (const FoundSet& set : seen.sets) {
    for (const SourceFile& file : set.files) {
      if (file.type != FileType::directory) taken.insert(join_path(set.folder, file.path));
    }
  }
  VARVE_ASSIGN(const std::vector<SourceFile> files, scan_source_tree(finder.folder(), null_progress()));
  for (const SourceFile& file : files) {
    if (file.type == FileType::directory) continue;
    ++seen.file_count;
    if (!taken.contains(join_path(finder.folder(), file.path)) && seen.left.size() < kNamesTold)
      seen.left.push_back(file.path);
  }
  seen.taken_count = taken.size();
  return seen;
}

std::string why_step(const SetPattern& pattern, const FoundSet& set) {
  if (set.goes_by_time) return "its names tell no step: when its newest file was written, in seconds";
  if (pattern.is_default()) {
    return time_of_step(set.step) ? "the folder's name is a time" : "the last number in the folder's name";
  }
  return "from the pattern";
}

std::string why_ranks(const Explanation& seen, const SetPattern& pattern, const WatchOptions& options) {
  if (pattern.has_rank()) return "from {rank}";
  if (!options.rank_regex.empty()) return "from --rank-regex";
  for (const FoundSet& set : seen.sets) {
    if (const uint64_t doubted = count_doubted_ranks(set.files); doubted > 0) return doubt_of_ranks(doubted);
  }
  return "from the numbers in which names differ";
}

/// Empty: it was said, or is the default.
std::string why_pattern(const Explanation& seen) {
  if (seen.rank_folder_count == 0) return {};
  return fmt::format("{} called as ranks are, with folders of the same numbers or times in them, taken for ranks",
                     format_count(seen.rank_folder_count, "folder", "folders"));
}

std::string in_words(const Explanation& seen, const SetPattern& pattern, const WatchOptions& options) {
  std::string text = fmt::format("{}: by the pattern '{}', {}\n", quote_name(seen.folder), pattern.text(),
                                 seen.sets.empty() ? "no set is found" : format_count(seen.sets.size(), "set", "sets"));
  if (const std::string why = why_pattern(seen); !why.empty())
    text += fmt::format("  pattern: {}; --pattern '{}' takes each of them for a set\n", why, SetPattern::kDefault);
  for (const FoundSet& set : seen.sets) {
    const size_t ranks = rank_count_of(set);
    const std::string place = set.folder == seen.folder ? std::string() : " in " + quote_name(base_name(set.folder));
    text += fmt::format("  {}{}: {}, {}\n", quote_name(SetName{seen.job, set.step}.to_string()), place,
                        format_count(set.files.size(), "entry", "entries"),
                        ranks == 0 ? "no ranks" : format_count(ranks, "rank", "ranks"));
  }
  if (!seen.sets.empty()) {
    text +=
        fmt::format("  steps: {}; ranks: {}\n", why_step(pattern, seen.sets.back()), why_ranks(seen, pattern, options));
  }
  if (seen.taken_count < seen.file_count) {
    text += fmt::format("  {} of {} belong to no set:", seen.file_count - seen.taken_count,
                        format_count(seen.file_count, "file", "files"));
    for (const std::string& name : seen.left) text += " " + quote_name(name);
    text += seen.file_count - seen.taken_count > seen.left.size() ? " ...\n" : "\n";
  }
  return text;
}

Json to_json(const Explanation& seen, const SetPattern& pattern, const WatchOptions& options) {
  Json sets = Json::array();
  for (const FoundSet& set : seen.sets) {
    sets.push_back({{"set", SetName{seen.job, set.step}.to_string()},
                    {"step", step_to_json(set.step)},
                    {"folder", set.folder},
                    {"entries", set.files.size()},
                    {"ranks", rank_count_of(set)},
                    {"why_step", why_step(pattern, set)}});
  }
  return {{"folder", seen.folder},
          {"pattern", pattern.text()},
          {"why_pattern", why_pattern(seen)},
          {"sets", std::move(sets)},
          {"why_ranks", why_ranks(seen, pattern, options)},
          {"files", seen.file_count},
          {"files_in_no_set", seen.file_count - seen.taken_count},
          {"examples", seen.left}};
}
}  // namespace

Result<ExitCode> explain_watch(Session& session, const WatchOptions& options) {
  Json told = Json::array();
  for (const std::string& named : options.folders) {
    std::error_code error;
    const std::filesystem::path folder = std::filesystem::canonical(named, error);
    if (error) return Status::from_errno(error.value(), "watch", named);
    SetFinder finder(folder.string(), options.patterns, options.rank_regex, options.completeness.rank_count);
    finder.look_only();
    VARVE_ASSIGN(const std::vector<std::string> others, finder.choose_pattern());
    for (const std::string& other : others)
      session.warn(Status::unsupported("what fits '" + other + "' would not be watched", folder.string()));
    VARVE_ASSIGN(const Explanation seen, look(finder, options.job.empty() ? folder.filename().string() : options.job));
    if (session.json()) {
      told.push_back(to_json(seen, finder.pattern(), options));
    } else {
      session.print(in_words(seen, finder.pattern(), options));
    }
  }
  if (session.json()) session.print_facts(Json{{"folders", std::move(told)}});
  return ExitCode::success;
}

}  // namespace varve::cli
