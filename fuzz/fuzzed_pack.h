// A pack as the fuzzer writes one: without scores, which it could never get right.
#pragma once

#include <vector>

#include "format/pack.h"

namespace varve {

/// Recipe bytes varint | recipe | run count varint | runs varint each | chunk count varint | chunks' lengths varint
/// each | body.
struct FuzzedPack {
  PackMeta meta;  ///< without scores
  ByteSpan body;  ///< in the input
};

inline Result<FuzzedPack> decode_fuzzed_pack(ByteSpan input) {
  ByteReader in(input);
  FuzzedPack pack;
  VARVE_ASSIGN(const uint64_t recipe_bytes, in.varint());
  VARVE_ASSIGN(const ByteSpan recipe, in.bytes(recipe_bytes));
  pack.meta.recipe.assign(recipe.begin(), recipe.end());
  VARVE_ASSIGN(const uint64_t run_count, in.count());
  for (uint64_t i = 0; i < run_count; ++i) {
    VARVE_ASSIGN(const uint64_t run, in.varint());
    pack.meta.held_runs.push_back(run);
  }
  VARVE_ASSIGN(const uint64_t chunk_count, in.count());
  for (uint64_t i = 0; i < chunk_count; ++i) {
    VARVE_ASSIGN(const uint64_t bytes, in.varint());
    pack.meta.chunks.push_back({static_cast<uint32_t>(bytes), {}});
  }
  pack.body = input.last(in.remaining());
  return pack;
}

inline ByteVector encode_fuzzed_pack(const PackMeta& meta, ByteSpan body) {
  ByteVector raw;
  ByteWriter out(raw);
  out.varint(meta.recipe.size());
  out.bytes(meta.recipe);
  out.varint(meta.held_runs.size());
  for (uint64_t run : meta.held_runs) out.varint(run);
  out.varint(meta.chunks.size());
  for (const ChunkEntry& chunk : meta.chunks) out.varint(chunk.bytes);
  out.bytes(body);
  return raw;
}

}  // namespace varve
