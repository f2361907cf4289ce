#pragma once

#include "aggregate/set_files.h"
#include "cli/arguments.h"

namespace varve::cli {

/// Declares --rank and --files, which choose among the files of a set.
void declare_file_filter(Arguments& arguments, FileFilter& filter);

}  // namespace varve::cli
