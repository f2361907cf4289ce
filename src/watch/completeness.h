#pragma once

#include <cstdint>
#include <string>

#include "watch/set_finder.h"

namespace varve {

/// What must be there before a set is whole, besides that nothing changes any more.
struct Completeness {
  uint64_t rank_count = 0;  ///< files of so many ranks; 0: any
  /// A file of this name, in the set's folder; `{step}` in it stands for the step. Empty: none is needed.
  std::string end_marker;

  bool asks_for_something() const { return rank_count > 0 || !end_marker.empty(); }
  /// What is lacking yet, for people; empty: nothing.
  Result<std::string> lacking(const FoundSet& set) const;
};

/// Which file of the set a program is writing (open_writers.h), for people; empty: none.
Result<std::string> being_written(const FoundSet& set);

}  // namespace varve
