#pragma once

#include <string>
#include <vector>

#include "study/study_set.h"

namespace varve {

/// The least, the most and the mean of what files have.
struct Spread {
  double least = 0, most = 0, mean = 0;
};

/// What a set consists of: mcrEngine, table III. Files are those that belong to a rank, if any does.
struct SetContents {
  std::string label;
  uint64_t file_count = 0, rank_count = 0, bytes = 0;
  Spread file_bytes, variables_per_file;
  uint64_t variable_count = 0;
  /// Shares of the set's bytes. `other`: other types, texts and what nothing is known of; `skeleton`: in no variable.
  double doubles = 0, singles = 0, other = 0, skeleton = 0;
  std::vector<std::string> formats;
};

/// A similarity class in the newest set.
struct ClassContents {
  std::string class_key;
  std::string type;
  uint64_t stream_count = 0, bytes = 0;
};

struct Contents {
  std::vector<SetContents> sets;
  std::vector<ClassContents> classes;  ///< largest first
};

Contents study_contents(const StudySeries& series);

}  // namespace varve
