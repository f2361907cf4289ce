#pragma once

#include <string>
#include <vector>

#include "varve/status.h"

namespace varve {

/// Where one set of a series lies: a folder, or one file of it.
struct SetPlace {
  std::string label;   ///< what the set is called in results
  std::string folder;  ///< that holds its files
  std::string file;    ///< empty: all that is in the folder; else this one alone
};

/// The sets that paths name, oldest first:
/// - a folder that holds folders and no file is a series: each folder in it is a set, in natural order;
/// - any other folder is one set, with all that is below it;
/// - a file is a set of its own.
/// Several paths follow one another as they are given. not_found, io_error: a path cannot be looked at;
/// invalid_argument: there is nothing to study.
Result<std::vector<SetPlace>> find_series(const std::vector<std::string>& paths);

/// Whether `a` comes before `b` as people count: runs of digits by their value, so that dump9 comes before dump10.
bool natural_less(std::string_view a, std::string_view b);

}  // namespace varve
