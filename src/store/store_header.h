#pragma once

#include <optional>
#include <string>
#include <vector>

#include "arena/frame.h"
#include "store/spread_file_system.h"

namespace varve {

/// What makes a folder a store: FORMAT.md, "Store header". Each arena's header says the same.
struct StoreHeader {
  UniqueId store;
  ScoreAlgorithm algorithm = ScoreAlgorithm::blake3;
  uint8_t score_bytes = 32;
  bool operator==(const StoreHeader&) const = default;
};

ByteVector encode_store_header(const StoreHeader& header);
/// Of the store in the folder `path`. corrupt if it is damaged, unsupported if it is of another version.
Result<StoreHeader> decode_store_header(ByteSpan raw, const std::string& path);

/// Makes the headers of a store's places anew that are missing or damaged: from that of another place, or else from
/// what most of the arenas say. Returns the headers made, by their paths. corrupt if nothing says what the header was,
/// or if what says it is not agreed on. not_found if there is no store at all.
Result<std::vector<std::string>> restore_store_headers(const std::vector<SpreadPlace>& places);

}  // namespace varve
