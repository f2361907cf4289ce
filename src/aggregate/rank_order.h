#pragma once

#include <string>
#include <vector>

#include "aggregate/source_tree.h"

namespace varve {

/// Finds the rank of each regular file from the numbers in the names. Files whose paths differ only in digits are a
/// family; in a family of several the last number that varies is the rank; a file alone in its family has one if the
/// number follows a word such as `rank`, `cpu`, `proc`, `pe`, `task` or `node`. Others belong to no rank
/// (-1). `regex`, if not empty, decides instead: its first group (or all of the match) is the rank; files that it does
/// not match belong to none.
Status assign_ranks(std::vector<SourceFile>& files, const std::string& regex);

/// invalid_argument: this is no regular expression. An empty one decides nothing.
Status check_rank_regex(const std::string& regex);

/// The path with each run of digits replaced by '#'.
std::string path_family(std::string_view path);

}  // namespace varve
