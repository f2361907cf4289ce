#pragma once

#include "codec/candidates.h"

// What encoders have learned, written down for those of another process. Whoever reads it must not trust it: all that
// it can do is make packs larger, and a save slower.

namespace varve {

void write_candidate(ByteWriter& w, const Candidate& candidate);
/// corrupt: it is none; unsupported: this build has no such codec.
Result<Candidate> read_candidate(ByteReader& reader);

void write_guess(ByteWriter& w, const NumberGuess& guess);
Result<NumberGuess> read_guess(ByteReader& reader);

void write_type(ByteWriter& w, const ElementType& type);
Result<ElementType> read_type(ByteReader& reader);

/// A small number, or corrupt.
Result<unsigned> read_at_most(ByteReader& reader, unsigned most);

}  // namespace varve
