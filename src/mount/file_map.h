#pragma once

#include <cstdint>
#include <vector>

#include "store/tree.h"

namespace varve {

/// Where the bytes of one stored file lie: pieces in the order of the file, without gaps.
struct FileMap {
  static constexpr uint32_t kPattern = UINT32_MAX;
  struct Piece {
    uint64_t file_offset = 0, bytes = 0;
    uint64_t at = 0;       ///< in the pack; of a pattern its eight bytes
    uint32_t pack = 0;     ///< ordinal in `packs`, or kPattern
    uint32_t skipped = 0;  ///< of a pattern: which of its bytes the piece begins with
  };
  std::vector<Piece> pieces;
  std::vector<PackLink> packs;  ///< those that the file needs
  uint64_t bytes = 0;

  /// The piece that holds the byte at `offset`, which is below `bytes`.
  size_t piece_at(uint64_t offset) const;
  uint64_t memory_bytes() const { return pieces.size() * sizeof(Piece) + packs.size() * sizeof(PackLink); }
};

/// corrupt: the streams do not cover the file.
Result<FileMap> map_file(const Leaf& leaf, const TreeFile& file);

}  // namespace varve
