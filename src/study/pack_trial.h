#pragma once

#include <functional>
#include <string>
#include <vector>

#include "aggregate/pack_builder.h"
#include "aggregate/save.h"
#include "aggregate/source.h"

namespace varve {

/// All bytes of a group, laid down in packs as a save with these options does, but without leaving out what is equal.
/// They are held in memory.
struct LaidOutGroup {
  std::vector<PendingPack> packs;
  uint64_t raw_bytes = 0;
  double read_seconds = 0;   ///< of reading, wall time
  double order_seconds = 0;  ///< of finding variables and laying them into packs, processor time
};
Result<LaidOutGroup> lay_out(Source& source, const SaveOptions& options, ProgressSink& progress);

/// How packs are encoded: a name for people, and the encoder that serves one class.
struct Method {
  std::string name;
  std::function<std::unique_ptr<Encoder>()> make_encoder;
};
/// From what CodecPolicy::parse() takes, or one of two more: "by-type" (mcrEngine's codecs by type alone: FPC for
/// doubles, fpzip for singles, else lz4 or what there is for it) and "by-type+gzip:6".
Result<Method> find_method(const std::string& name);

/// What became of a pack.
struct PackOutcome {
  std::string class_key;
  uint64_t raw_bytes = 0, stored_bytes = 0;
  double encode_seconds = 0, decode_seconds = 0;  ///< processor time
};
/// Encodes all packs, and decodes them again. Stored bytes are those of body, recipe and a table of one chunk.
/// internal: what was decoded differs.
Result<std::vector<PackOutcome>> try_method(const std::vector<PendingPack>& packs, const Method& method,
                                            size_t thread_count);

}  // namespace varve
