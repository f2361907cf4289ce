#pragma once

#include "core/progress.h"
#include "engine/group_streams.h"

namespace varve {

/// Finds the classes whose variables lie on the same grids and predict each other (codec/across.h), and has their
/// streams be bundles: Stream::bundle. A sample of each is read. Nothing is found where options rule it out: a bundle
/// is cut into the same chunks as its variables alone, so chunks are of a fixed size; and codecs that are to be fast do
/// without.
Status find_bundles(Source& source, const SaveOptions& options, GroupStreams& group);

}  // namespace varve
