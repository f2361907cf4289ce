#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "store/catalog.h"
#include "varve/status.h"

namespace varve::cli {

/// Something of a set, as an argument names it: "JOB@STEP:PART", or "JOB:PART" for the job's newest set.
struct PartOfSet {
  std::string set, part;
};

/// Whether a text can be read so. The name of a job has no '@' and no '/', that of a part may have any.
bool names_part_of_set(const std::string& text);

/// Which job is meant where both names have colons is told by the store. invalid_argument: it cannot be told. One that
/// is not there is named as if it were.
Result<PartOfSet> find_part_of_set(const Catalog& catalog, const std::string& text);

}  // namespace varve::cli
