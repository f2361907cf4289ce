#pragma once

#include <vector>

#include "aggregate/source.h"
#include "core/unique_id.h"
#include "store/set_record.h"

namespace varve {

/// What several processes save together: the first looks, and tells the others.
struct SavePlan {
  SetName name;
  UniqueId run;  ///< of this save: its parts belong together
  std::vector<std::vector<SourceFile>> groups;
};

ByteVector encode_save_plan(const SavePlan& plan);
Result<SavePlan> decode_save_plan(ByteSpan raw);

}  // namespace varve
