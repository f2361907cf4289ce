#include "watch/set_pattern.h"

#include <algorithm>
#include <array>

#include "core/nearest.h"

namespace varve {

namespace {
constexpr std::string_view kStep = "{step}", kTime = "{time}", kRank = "{rank}";
constexpr size_t kStarsMax = 8;  ///< in a component: what matching costs at worst is bounded by it
constexpr size_t kTimeCharactersMax = 32;

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

std::optional<uint64_t> time_of(std::string_view text) {
  const std::optional<uint64_t> step = parse_step(text);
  return step && !time_of_step(*step) ? namesake_of_step(*step) : step;
}

/// Matches one component, as much as possible with the first stars.
class ComponentMatcher {
 public:
  ComponentMatcher(std::string_view name, SetPattern::Match& match) : name_(name), match_(match) {}

  bool matches(std::string_view pattern, size_t at) {
    if (pattern.empty()) return at == name_.size();
    if (pattern.starts_with(kStep)) return number(pattern.substr(kStep.size()), at, match_.step);
    if (pattern.starts_with(kRank)) return number(pattern.substr(kRank.size()), at, match_.rank);
    if (pattern.starts_with(kTime)) return time(pattern.substr(kTime.size()), at);
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
  bool number(std::string_view rest, size_t at, std::optional<uint64_t>& into) {
    if (at > 0 && is_digit(name_[at - 1])) return false;
    size_t end = at;
    while (end < name_.size() && is_digit(name_[end])) ++end;
    const std::optional<uint64_t> value = parse_step(name_.substr(at, end - at));
    if (!value || !matches(rest, end)) return false;
    into = value;
    return true;
  }

  bool time(std::string_view rest, size_t at) {
    if (at > 0 && (is_digit(name_[at - 1]) || name_[at - 1] == '.')) return false;
    for (size_t end = std::min(name_.size(), at + kTimeCharactersMax); end > at; --end) {
      if (end < name_.size() && is_digit(name_[end])) continue;
      const std::optional<uint64_t> step = time_of(name_.substr(at, end - at));
      if (!step || !matches(rest, end)) continue;
      match_.step = step;
      return true;
    }
    return false;
  }

  const std::string_view name_;
  SetPattern::Match& match_;
};

size_t occurrences(std::string_view text, std::string_view what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, at + what.size())) ++count;
  return count;
}

/// Whether there is a brace that begins nothing that a pattern knows.
bool has_unknown_placeholder(std::string_view component) {
  for (size_t at = component.find('{'); at != std::string_view::npos; at = component.find('{', at + 1)) {
    const std::string_view rest = component.substr(at);
    if (!rest.starts_with(kStep) && !rest.starts_with(kTime) && !rest.starts_with(kRank)) return true;
  }
  return false;
}

constexpr std::string_view kOpenFoam = "openfoam";

struct ReadyPatterns {
  std::string_view program;
  std::vector<std::string_view> patterns;
};
/// As the programs call their checkpoints unless told otherwise.
const std::array<ReadyPatterns, 5>& ready_patterns() {
  static const std::array<ReadyPatterns, 5> ready = {
      {{kOpenFoam, {"processor{rank}/{time}/**", "processors*/{time}/**", "{time}/**"}},
       {"gromacs", {"*.cpt"}},
       {"lammps", {"*.{step}.restart.*", "*.{step}.restart", "*restart.{step}.*", "*restart.{step}", "*restart.?"}},
       {"enzo", {"DD{step}/**", "RD{step}/**"}},
       {"qe", {"*.save/**"}}}};
  return ready;
}
}  // namespace

Result<SetPattern> SetPattern::parse(std::string_view text) {
  const auto wrong = [&](const char* what) {
    return Status::invalid_argument(what, std::string(text), "for example '*{step}/**' or 'restart.{step}.{rank}'");
  };
  SetPattern pattern;
  pattern.is_default_ = text == kDefault;
  pattern.is_said_ = true;
  pattern.components_.clear();
  pattern.folder_depth_ = 0;
  size_t steps = 0, ranks = 0, ranks_before_step = 0;
  for (const std::string_view component : split(text)) {
    if (component.empty() || component == "." || component == "..") return wrong("a pattern's components have names");
    if (!pattern.components_.empty() && pattern.open_ended()) return wrong("** comes last in a pattern");
    if (occurrences(component, "*") > kStarsMax) return wrong("too many stars");
    if (has_unknown_placeholder(component)) return wrong("a pattern knows {step}, {time} and {rank}, and no other");
    const size_t steps_here = occurrences(component, kStep) + occurrences(component, kTime);
    pattern.components_.emplace_back(component);
    if (steps_here > 0 && steps == 0) {
      pattern.folder_depth_ = pattern.components_.size();
      ranks_before_step = ranks;
    }
    steps += steps_here;
    ranks += occurrences(component, kRank);
  }
  if (steps > 1) return wrong("a pattern has one {step} or {time} at most");
  if (ranks > 1) return wrong("a pattern has one {rank} at most");
  if (pattern.named_components() == 0) return wrong("a pattern names something");
  pattern.has_step_ = steps == 1;
  pattern.has_rank_ = ranks == 1;
  if (ranks_before_step > 0 || pattern.folder_depth_ == pattern.components_.size()) pattern.folder_depth_ = 0;
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
  const size_t named = named_components();
  if (open_ended() ? parts.size() <= named : parts.size() != named) return std::nullopt;
  return match_components(parts, named);
}

bool SetPattern::may_lead_on(std::string_view name, size_t depth) const {
  Match match;
  return ComponentMatcher(name, match).matches(components_[depth - 1], 0);
}

std::optional<uint64_t> SetPattern::folder_step(std::string_view path, bool among_times) const {
  const std::vector<std::string_view> parts = split(path);
  if (folder_depth_ == 0 || parts.size() != folder_depth_) return std::nullopt;
  if (is_default_ && (is_name_of_time(path) || among_times)) {
    if (const std::optional<uint64_t> time = time_of(path)) return time;
  }
  const std::optional<Match> match = match_components(parts, folder_depth_);
  return match ? match->step : std::nullopt;
}

std::string SetPattern::text() const {
  std::string text;
  for (const std::string& component : components_) text.append(text.empty() ? "" : "/").append(component);
  return text;
}

Result<SetPatterns> parse_patterns(std::string_view text) {
  std::vector<std::string_view> texts = {text}, programs;
  for (const ReadyPatterns& ready : ready_patterns()) {
    programs.push_back(ready.program);
    if (ready.program == text) texts = ready.patterns;
  }
  const std::string_view meant = nearest_word(text, programs);
  if (!meant.empty() && meant != text && text.find_first_of("{*?/") == std::string_view::npos) {
    std::string file(text);
    file.back() = '?';
    return Status::invalid_argument("no program of this name is known", std::string(text),
                                    "did you mean " + std::string(meant) + "? A file of this name is '" + file + "'");
  }
  SetPatterns patterns;
  for (const std::string_view each : texts) {
    VARVE_ASSIGN(patterns.emplace_back(), SetPattern::parse(each));
    if (text == kOpenFoam) patterns.back().stand_back();
  }
  return patterns;
}

}  // namespace varve
