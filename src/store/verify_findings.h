#pragma once

#include <optional>
#include <set>
#include <vector>

#include "store/verify.h"

namespace varve {

/// Something that is wrong with packs, of which it is not known yet whom it hurts.
struct PackDamage {
  Status what;
  std::optional<ArenaId> arena;
  std::set<Score> packs;
};

/// What one of several processes that verify a store tells the others.
struct Findings {
  VerifyReport report;
  std::vector<PackDamage> pack_damages;
};

ByteVector encode_findings(const Findings& findings);
Result<Findings> decode_findings(ByteSpan raw);

}  // namespace varve
