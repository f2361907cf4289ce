#include "cli/set_argument.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "core/step_text.h"
#include "store/remarks.h"

namespace varve::cli {

namespace {
/// What may follow the job's name.
bool is_step_or_tag(const std::string& text) { return parse_step(text) || check_tag(text).ok(); }

std::optional<PartOfSet> parse_with_label(const std::string& text) {
  const size_t at = text.find_first_of("@/");
  if (at == 0 || at == std::string::npos || text[at] == '/') return {};
  const size_t end = text.find(':', at + 1);
  if (end == std::string::npos || end + 1 == text.size() || !is_step_or_tag(text.substr(at + 1, end - at - 1)))
    return {};
  return PartOfSet{text.substr(0, end), text.substr(end + 1)};
}

/// "JOB:PART" in all the ways in which it can be read, as both names may have colons.
std::vector<PartOfSet> parse_without_label(const std::string& text) {
  std::vector<PartOfSet> ways;
  const size_t end = std::min(text.find_first_of("@/"), text.size() - 1);
  for (size_t colon = text.find(':', 1); colon < end; colon = text.find(':', colon + 1))
    ways.push_back({text.substr(0, colon), text.substr(colon + 1)});
  return ways;
}
}  // namespace

bool names_part_of_set(const std::string& text) {
  return parse_with_label(text).has_value() || !parse_without_label(text).empty();
}

Result<PartOfSet> find_part_of_set(const Catalog& catalog, const std::string& text) {
  VARVE_ASSIGN(const std::vector<std::string> jobs, catalog.jobs());
  auto is_there = [&](const std::string& job) { return std::find(jobs.begin(), jobs.end(), job) != jobs.end(); };
  const std::optional<PartOfSet> exact = parse_with_label(text);
  if (exact && is_there(exact->set.substr(0, exact->set.find('@')))) return *exact;
  const std::vector<PartOfSet> ways = parse_without_label(text);
  std::vector<PartOfSet> found;
  std::copy_if(ways.begin(), ways.end(), std::back_inserter(found),
               [&](const PartOfSet& way) { return is_there(way.set); });
  if (found.size() > 1) {
    return Status::invalid_argument("this may mean a file of the job " + found[0].set + " or of " + found[1].set, text,
                                    "write JOB@STEP:FILE");
  }
  if (found.size() == 1) return found[0];
  // The set that is not there is named by who looks for it.
  if (exact) return *exact;
  return ways.front();
}

}  // namespace varve::cli
