#pragma once

#include <string>
#include <vector>

#include "core/progress.h"
#include "engine/save.h"
#include "engine/source.h"
#include "layout/layout.h"
#include "service/server_link.h"

namespace varve {

/// What a node says of its files of a set before any of their bytes is asked for: the header of mcrEngine's
/// compute-node component (section IV-A). PROTOCOL.md, "offer and answer".
struct OfferedFiles {
  /// How the set is to be saved; the same for all nodes of a set. Only scheme, block_bytes, group_size, codec, chunker,
  /// match, pack_bytes and small_bytes are sent.
  SaveOptions options;
  std::vector<SourceFile> files;  ///< with ranks
  std::vector<Layout> layouts;    ///< of each file; empty for what is no regular file
};

ByteVector encode_offered_files(const OfferedFiles& offered);
/// From a node that is not trusted: paths are safe and sorted, and layouts valid for their files. corrupt otherwise.
/// `take` hears of all memory that the files take, here and where a set is made of them.
Result<OfferedFiles> decode_offered_files(ByteSpan raw, const TakeMemory& take = {});

inline constexpr uint64_t kOfferedBytesMax = 256_MiB;

struct SetOffer {
  SetName name;
  std::string node;         ///< a name of its own for each node
  uint64_t node_count = 1;  ///< of the set, which is saved once all have offered their files
  SaveOptions options;      ///< how it is saved; the same on all nodes
};

/// Offers the files of `source` to a server, which saves them together with those of the other nodes: the server pulls
/// what it needs, in the order in which it lays it down, and has its own memory bound. Returns when the set is
/// committed, or not: nothing is visible then. busy: a node is missing, has gone away, or has changed its files; offer
/// the set again. already_exists: it was saved before.
Status offer_set(ServerLink& link, const SetOffer& offer, Source& source, ProgressSink& progress = null_progress());

}  // namespace varve
