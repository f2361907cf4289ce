#include "watch/completeness.h"

#include <set>

#include "core/file_system.h"
#include "core/open_writers.h"

namespace varve {

Result<std::string> Completeness::lacking(const FoundSet& set) const {
  std::set<int64_t> ranks;
  bool empty = true;
  for (const SourceFile& file : set.files) {
    if (file.type == FileType::regular) empty = false;
    if (file.rank >= 0) ranks.insert(file.rank);
  }
  if (empty) return std::string("it has no files yet");
  if (ranks.size() < rank_count)
    return "files of " + std::to_string(ranks.size()) + " of " + std::to_string(rank_count) + " ranks are there";
  if (!end_marker.empty()) {
    std::string name = end_marker;
    constexpr std::string_view placeholder = "{step}";
    if (const size_t at = name.find(placeholder); at != std::string::npos)
      name.replace(at, placeholder.size(), std::to_string(set.step));
    const Status there = posix_file_system().stat(join_path(set.folder, name)).status();
    if (there.code() == StatusCode::not_found) return "there is no " + name + " yet";
    VARVE_TRY(there);
  }
  return std::string();
}

Result<std::string> being_written(const FoundSet& set) {
  for (const SourceFile& file : set.files) {
    if (file.type != FileType::regular) continue;
    VARVE_ASSIGN(const bool written, is_being_written(join_path(set.folder, file.path)));
    if (written) return "a program is writing " + file.path;
  }
  return std::string();
}

}  // namespace varve
