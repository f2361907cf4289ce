#pragma once

#include <string>

#include "store/store.h"
#include "study/study_set.h"

namespace varve {

/// Opens the sets of a job that are in a store, as far as they are complete. Nothing is restored: their bytes are read
/// out of the store's packs when they are needed, and verified. What describes the sets (the leaves of their trees) is
/// held in memory. `store` outlives the series. not_found: there is no such set.
Result<StudySeries> open_stored_series(const Store& store, const std::string& job, const SaveOptions& options,
                                       ProgressSink& progress);

}  // namespace varve
