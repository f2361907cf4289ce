#include "transfer/pack_shapes.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace varve {

namespace {
/// Longer elements are bytes to an encoder, as they are when they are saved.
constexpr uint32_t kElementBytesMax = 64;
}  // namespace

PackShapes::PackShapes(const Leaf& leaf) {
  for (const TreeFile& file : leaf.files) {
    for (uint32_t stream = 0; stream < file.streams.size(); ++stream) {
      uint64_t at = 0;
      for (const Reference& reference : file.streams[stream]) {
        if (reference.pack != Reference::kPattern)
          pieces_[leaf.packs[reference.pack].score].push_back({reference.offset, reference.bytes, at, &file, stream});
        at += reference.bytes;
      }
    }
  }
  for (auto& [score, pieces] : pieces_) {
    std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.offset < b.offset; });
  }
}

ElementType PackShapes::type_of(const Piece& piece) {
  if (piece.stream == 0) return {};
  const Variable& variable = piece.file->layout.variables[piece.stream - 1];
  return variable.encoded || variable.type.bytes > kElementBytesMax ? ElementType{} : variable.type;
}

Run PackShapes::run_of(const Piece& piece, const ElementType& type) {
  Run run{piece.bytes / type.bytes, {}, false};
  if (piece.stream == 0) return run;
  const Variable& variable = piece.file->layout.variables[piece.stream - 1];
  const std::vector<uint64_t>& shape = variable.run_shape.empty() ? variable.shape : variable.run_shape;
  if (!variable.encoded) run.dims.assign(shape.rbegin(), shape.rend());
  std::erase(run.dims, uint64_t{1});
  const uint64_t elements = std::accumulate(run.dims.begin(), run.dims.end(), uint64_t{1}, std::multiplies<>());
  run.whole = piece.stream_offset == 0 && piece.bytes == variable.stored_bytes() && run.elements == elements;
  return run;
}

PackShape PackShapes::shape_of(const Score& pack, uint64_t raw_bytes) const {
  PackShape shape;
  const auto found = pieces_.find(pack);
  if (found != pieces_.end()) shape.type = type_of(found->second.front());
  const uint64_t element_bytes = shape.type.bytes;
  if (found == pieces_.end() || raw_bytes % element_bytes != 0) return {{}, {Run{raw_bytes, {}, false}}};
  uint64_t end = 0;
  auto fill_up_to = [&](uint64_t offset) {
    if (offset > end) shape.runs.push_back({(offset - end) / element_bytes, {}, false});
    end = offset;
  };
  for (const Piece& piece : found->second) {
    // A chunk that occurs twice is referred to twice; one place is enough.
    const bool fits = piece.offset >= end && piece.bytes <= raw_bytes - piece.offset && type_of(piece) == shape.type &&
                      piece.offset % element_bytes == 0 && piece.bytes % element_bytes == 0;
    if (!fits) continue;
    fill_up_to(piece.offset);
    shape.runs.push_back(run_of(piece, shape.type));
    end += piece.bytes;
  }
  fill_up_to(raw_bytes);
  return shape;
}

}  // namespace varve
