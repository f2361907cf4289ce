#pragma once

#include <memory>

#include "engine/group_streams.h"

namespace varve {

/// With effort best, and where chunks are to have a fixed size of less than kNoiseChunkBytes: whether much of the
/// bytes without a type would come again in chunks that are cut by their content, but not in those of a fixed size, as
/// where a program appends to one file what another one holds. If so, they are cut by it (Stream::moves), and are found
/// again in this set and in others of which the same is true. Looks at the first 32 MiB of them. Nothing is found while
/// a program waits for its checkpoint.
Status find_moved_bytes(Source& source, const SaveOptions& options, GroupStreams& group);

/// Cuts what moves, where `fixed` cuts all else: about as many chunks.
Result<std::unique_ptr<Chunker>> make_chunker_by_content(const ChunkerOptions& fixed);

}  // namespace varve
