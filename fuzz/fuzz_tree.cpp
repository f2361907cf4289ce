// Any bytes are a leaf or a root of a set's tree, or a Status; a leaf that was decoded is safe to restore from, and
// both encode again.
#include <cstdlib>

#include "format/tree.h"
#include "fuzz_layout.h"

using namespace varve;

namespace {

/// What a restore relies on without another look (tree.h, decode_leaf()).
void check_file(const TreeFile& file, const Leaf& leaf) {
  if (!path_is_safe(file.path)) std::abort();
  if (file.type != FileType::regular) return;
  if (file.streams.size() != file.layout.variables.size() + 1) std::abort();
  for (uint32_t ordinal : file.class_of) {
    if (ordinal >= leaf.class_keys.size()) std::abort();
  }
  for (size_t i = 0; i < file.streams.size(); ++i) {
    uint64_t extent_bytes = 0, reference_bytes = 0;
    for (const Extent& extent : stream_extents(file, i)) {
      if (extent.bytes > file.bytes || extent.offset > file.bytes - extent.bytes) std::abort();
      extent_bytes += extent.bytes;
    }
    for (const Reference& reference : file.streams[i]) {
      if (reference.pack != Reference::kPattern && reference.pack >= leaf.packs.size()) std::abort();
      reference_bytes += reference.bytes;
    }
    if (extent_bytes != reference_bytes) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ByteSpan raw = fuzz_bytes(data, size);
  for (size_t score_bytes : {20, 32}) {
    if (const Result<Leaf> leaf = decode_leaf(raw, score_bytes); leaf.ok()) {
      for (const TreeFile& file : leaf->files) check_file(file, *leaf);
      const ByteVector encoded = encode_leaf(*leaf, score_bytes);
      const Result<Leaf> again = decode_leaf(encoded, score_bytes);
      if (!again.ok() || encode_leaf(*again, score_bytes) != encoded) std::abort();
    }
    const auto same_piece = [raw](const Score&, const ArenaId&) {
      return Result<std::optional<ByteVector>>(ByteVector(raw.begin(), raw.end()));
    };
    decode_leaf_of(ByteVector(raw.begin(), raw.end()), score_bytes, same_piece)
        .status()
        .ignore("it only must not crash");
    if (const Result<Root> root = decode_root(raw, score_bytes); root.ok()) {
      const ByteVector encoded = encode_root(*root, score_bytes);
      const Result<Root> again = decode_root(encoded, score_bytes);
      if (!again.ok() || encode_root(*again, score_bytes) != encoded) std::abort();
    }
  }
  return 0;
}
