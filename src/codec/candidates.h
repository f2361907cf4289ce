#pragma once

#include "codec/chooser.h"

namespace varve {

/// The chains worth a trial on packs like this one, the default first. Never empty.
std::vector<CodecChain> candidate_chains(ByteSpan raw, const PackShape& shape, Effort effort);

/// What a pack of this type gets without a trial.
const CodecChain& default_chain(const ElementType& type);

/// `chain` with its last stage replaced by zstd or lzma at a level.
CodecChain with_coder(const CodecChain& chain, CodecNumber coder, int level);

/// The period of a stream of equal records ("structs"), a multiple of 4 up to 512, at which its bytes agree most often;
/// 0 if none stands out.
size_t find_record_bytes(ByteSpan raw);

/// Some of a pack's bytes that stand for all of them, with their shape: whole runs or pieces of runs from several
/// places.
struct PackSample {
  ByteVector bytes;
  PackShape shape;
};
PackSample sample_of(ByteSpan raw, const PackShape& shape, size_t sample_bytes);

}  // namespace varve
