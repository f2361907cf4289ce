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

/// The type of the elements in packs of this class, BYTES if its key names none.
ElementType element_type_of_class(const std::string& class_key);

}  // namespace varve
