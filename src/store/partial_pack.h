#pragma once

#include "arena/pack.h"

namespace varve {

/// A pack as a frame is written of it.
struct EncodedPack {
  PackMeta meta;
  ByteVector body;
};

/// The pack `table` with those chunks only that `held` says, whose bytes one after another are `raw`: a shorter body,
/// the same table, so the same score. It is encoded by the chain that `table` names, or stored if that gains nothing.
/// unsupported: this build lacks a codec of the chain.
Result<EncodedPack> encode_partial_pack(PackMeta table, const std::vector<bool>& held, ByteSpan raw);

/// The same of a pack at hand, with the chunks that lie in the (joined) ranges; corrupt if one of them is missing or
/// damaged.
Result<EncodedPack> partial_pack(Pack& pack, const std::vector<Extent>& ranges);

/// The bytes of the chunks that are `wanted`, one after another, each checked; corrupt likewise.
Result<ByteVector> bytes_of_chunks(Pack& pack, const std::vector<bool>& wanted);

/// The shape of what a pack of this class holds, if chunks are left out: its arrays have gaps.
PackShape flat_shape(const std::string& class_key, uint64_t bytes);

}  // namespace varve
