#pragma once

#include <map>
#include <vector>

#include "core/progress.h"
#include "layout/layout.h"
#include "store/set_record.h"
#include "store/store.h"

namespace varve {

/// Ranges of packs' raw bytes, one for each reference.
using PackUses = std::map<Score, std::vector<Extent>>;

/// What of some references is shared.
struct Sharing {
  uint64_t bytes = 0;                ///< that an earlier set refers to as well
  std::map<SetName, uint64_t> with;  ///< how many of them each earlier set does; several may refer to the same
};

/// Looks for `uses`, which are of the set of `record`, in the trees of the sets that were saved before it and are still
/// there. Of a set that was saved in the same second, only another step of the same job can tell that it came later.
/// Warns of a set whose tree is damaged, and takes it to share nothing. Progress is in raw bytes of sets.
Result<Sharing> find_sharing(const Store& store, const SetRecord& record, const PackUses& uses, ProgressSink& progress);

}  // namespace varve
