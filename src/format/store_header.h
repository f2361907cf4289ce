#pragma once

#include <string>

#include "core/unique_id.h"
#include "hash/score.h"

namespace varve {

/// What makes a folder a store: FORMAT.md, "Store header". Each arena's header says the same.
struct StoreHeader {
  UniqueId store;
  ScoreAlgorithm algorithm = ScoreAlgorithm::blake3;
  uint8_t score_bytes = 32;
  bool operator==(const StoreHeader&) const = default;
};

ByteVector encode_store_header(const StoreHeader& header);
/// Reads the file at `path`. corrupt if it is damaged, unsupported if it is of another version.
Result<StoreHeader> decode_store_header(ByteSpan raw, const std::string& path);

}  // namespace varve
