#include "level/checkpoint_parts.h"

#include "core/thread_pool.h"

namespace varve {

Status HeldParts::read(std::span<const PartRead> reads) {
  for (const PartRead& each : reads) VARVE_TRY(read_part(each));
  return {};
}

Status HeldParts::load(std::span<const PartLoad> loads, size_t thread_count) {
  return parallel_for(loads.size(), thread_count, [&](size_t i) { return load_part(loads[i]); });
}

}  // namespace varve
