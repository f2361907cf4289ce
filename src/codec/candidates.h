#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "codec/codec.h"
#include "codec/guess.h"

// What a pack may be encoded by, and what is tried on a sample of it.

namespace varve {

/// How much time may be spent on finding a good codec chain.
enum class Effort : uint8_t { fast, balanced, best };

/// A way to encode a pack.
struct Candidate {
  CodecChain chain;
  /// Bytes that are taken for these numbers.
  std::optional<NumberGuess> as{};
  /// Planes are predicted along straight lines across their rows.
  bool straight = false;

  bool is_like(const Candidate& other) const {
    return straight == other.straight && as == other.as && chain.name() == other.chain.name();
  }
};
Result<EncodedBytes> encode_candidate(const Candidate& candidate, ByteSpan raw, const PackShape& shape);

/// Recipe and body.
size_t size_of(const EncodedBytes& encoded);
/// What so long a sample of a pack adds to that, from 1 on: without a part of what coders take but once for a pack.
size_t size_of_sample(const EncodedBytes& encoded, size_t sample_bytes, size_t pack_bytes);

/// The candidates by the size that they gave a sample, smallest first.
struct Trial {
  struct Outcome {
    Candidate candidate;
    size_t bytes;
  };
  std::vector<Outcome> outcomes;
  size_t default_index = 0;  ///< of the first candidate
  size_t sample_bytes = 0;
  size_t default_bytes() const { return outcomes[default_index].bytes; }
  /// What a candidate made of the sample, if it was tried.
  std::optional<size_t> bytes_of(const Candidate& candidate) const;
};
/// `guess`: what bytes of unknown meaning seem to be.
Result<Trial> try_candidates(ByteSpan raw, const PackShape& shape, Effort effort,
                             const std::optional<NumberGuess>& guess = {});

/// The chains worth a trial on packs like this one, the default first. Never empty.
std::vector<CodecChain> candidate_chains(ByteSpan raw, const PackShape& shape, Effort effort);
/// For packs with parts.
std::vector<CodecChain> across_chains(const ElementType& type, Effort effort);
const CodecChain& across_chain(Effort effort);
/// For what repeats from far away: filters change the bytes, and may hide it.
std::vector<CodecChain> far_chains(const ElementType& type, Effort effort);
/// What suits most packs of this type, the default first: what one gets without a trial.
std::span<const CodecChain> usual_chains(const ElementType& type);
inline const CodecChain& default_chain(const ElementType& type) { return usual_chains(type).front(); }

/// Whether it is of numbers, and no dimensions say that they are an array.
bool may_be_records(const PackShape& shape);

/// Whether `coder` is its last stage.
bool ends_in(const CodecChain& chain, CodecNumber coder);
/// `chain` with its last stage replaced by zstd or lzma at a level; magnitudes by a shuffle and that, as zstd and lzma
/// code bytes, not numbers.
CodecChain with_coder(const CodecChain& chain, CodecNumber coder, int level);
/// A codec at a level; without a codec if the build has none.
CodecChain::Stage stage(CodecNumber number, int level = 0);

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
