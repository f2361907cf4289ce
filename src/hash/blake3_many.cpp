#include "hash/blake3_many.h"

#include <algorithm>
#include <array>
#include <bit>

extern "C" {
/// BLAKE3's own dispatch to the best kernel of the processor (blake3_impl.h): compresses `input_count` inputs of
/// `blocks` blocks of 64 bytes each, and writes 32 bytes for each.
void blake3_hash_many(const uint8_t* const* inputs, size_t input_count, size_t blocks, const uint32_t key[8],
                      uint64_t counter, bool increment_counter, uint8_t flags, uint8_t flags_start, uint8_t flags_end,
                      uint8_t* out);
}

namespace varve {

namespace {
// BLAKE3 specification, sections 2.1 to 2.5.
constexpr uint32_t kInitialValue[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                       0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
constexpr size_t kLeafBytes = 1024;
constexpr size_t kLeafBlocks = kLeafBytes / 64;
constexpr size_t kValueBytes = 32;
constexpr uint8_t kChunkStart = 1, kChunkEnd = 2, kParent = 4, kRoot = 8;
/// More would only lengthen the stack: a single input of this length fills all lanes.
constexpr size_t kLeavesMax = 16;

using Values = std::array<uint8_t, kBlake3LanesMax * kLeavesMax * kValueBytes>;
using Inputs = std::array<const uint8_t*, kBlake3LanesMax * kLeavesMax / 2>;

/// Hashes leaf after leaf of all inputs at once; `values` gets them input by input.
void hash_leaves(std::span<const ByteSpan> inputs, size_t leaf_count, Values& values) {
  Inputs leaves;
  std::array<uint8_t, kBlake3LanesMax * kValueBytes> row;
  for (size_t leaf = 0; leaf < leaf_count; ++leaf) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      leaves[i] = reinterpret_cast<const uint8_t*>(inputs[i].data()) + leaf * kLeafBytes;
    }
    blake3_hash_many(leaves.data(), inputs.size(), kLeafBlocks, kInitialValue, leaf, false, 0, kChunkStart, kChunkEnd,
                     row.data());
    for (size_t i = 0; i < inputs.size(); ++i) {
      std::copy_n(&row[i * kValueBytes], kValueBytes, &values[(i * leaf_count + leaf) * kValueBytes]);
    }
  }
}
}  // namespace

bool blake3_takes_many(size_t bytes) {
  return bytes >= 2 * kLeafBytes && bytes <= kLeavesMax * kLeafBytes && std::has_single_bit(bytes);
}

void hash_blake3_many(std::span<const ByteSpan> inputs, std::span<Score> scores) {
  const size_t leaf_count = inputs[0].size() / kLeafBytes;
  Values first, second;
  Values *nodes = &first, *parents = &second;
  Inputs pairs;
  hash_leaves(inputs, leaf_count, *nodes);
  for (size_t width = leaf_count / 2; width > 0; width /= 2) {
    const size_t count = width * inputs.size();
    for (size_t i = 0; i < count; ++i) pairs[i] = &(*nodes)[i * 2 * kValueBytes];
    const uint8_t flags = width == 1 ? kParent | kRoot : kParent;
    blake3_hash_many(pairs.data(), count, 1, kInitialValue, 0, false, flags, 0, 0, parents->data());
    std::swap(nodes, parents);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::copy_n(reinterpret_cast<const std::byte*>(&(*nodes)[i * kValueBytes]), kValueBytes, scores[i].bytes.begin());
  }
}

}  // namespace varve
