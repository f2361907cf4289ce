#pragma once

#include "aggregate/save.h"
#include "aggregate/source.h"
#include "store/set_part.h"

namespace varve {

/// Saves one group's source as a part of a set (set_part.h): all that the part says is durable when this returns OK,
/// and complete_set() makes the set of all parts. Of `options`, job, step, group size, ranks and layouts are not looked
/// at. The record that is returned is the part's. Progress is in raw bytes.
///
/// already_exists: a part of that name is there already. Starts over if a prune took the writer for dead (busy after
/// the third time); no_space, io_error, cancelled ...: nothing was published.
Result<SetRecord> save_part(const Store& store, Source& source, const PartName& name, const SaveOptions& options,
                            ProgressSink& progress = null_progress());

}  // namespace varve
