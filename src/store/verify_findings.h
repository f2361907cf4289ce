#pragma once

#include <set>

#include "store/verify.h"

namespace varve {

/// What one of several processes that verify a store tells the others.
struct Findings {
  VerifyReport report;
  std::set<Score> damaged_packs;  ///< of which no whole copy was seen
};

ByteVector encode_findings(const Findings& findings);
Result<Findings> decode_findings(ByteSpan raw);

}  // namespace varve
