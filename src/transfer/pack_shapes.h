#pragma once

#include <unordered_map>

#include "codec/codec.h"
#include "store/tree.h"

namespace varve {

/// What a leaf knows of the arrays that lie in packs: what an encoder needs to predict numbers along their dimensions.
/// A pack does not say it itself.
class PackShapes {
 public:
  /// `leaf` must outlive this.
  explicit PackShapes(const Leaf& leaf);
  /// The shape of a pack that holds all its `raw_bytes`. What the leaf does not know of it is without dimensions.
  PackShape shape_of(const Score& pack, uint64_t raw_bytes) const;

 private:
  struct Piece {
    uint64_t offset = 0, bytes = 0;  ///< in the pack
    uint64_t stream_offset = 0;
    const TreeFile* file = nullptr;
    uint32_t stream = 0;
  };
  static ElementType type_of(const Piece& piece);
  static Run run_of(const Piece& piece, const ElementType& type);

  std::unordered_map<Score, std::vector<Piece>, ScoreHash> pieces_;
};

}  // namespace varve
