#include "cli/file_filter.h"

#include "cli/text.h"

namespace varve::cli {

void declare_file_filter(Arguments& arguments, FileFilter& filter) {
  auto take_rank = [&filter](const std::string& text) -> Status {
    VARVE_ASSIGN(uint64_t rank, parse_number(text, INT64_MAX));
    filter.rank = static_cast<int64_t>(rank);
    return {};
  };
  arguments.value("--rank", "N", take_rank, "only the files of this rank");
  arguments.list("--files", "GLOB", filter.globs,
                 "only files that match; a pattern without '/' may\nmatch the last part of a path alone; repeatable");
}

}  // namespace varve::cli
