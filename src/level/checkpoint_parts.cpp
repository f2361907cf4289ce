#include "level/checkpoint_parts.h"

namespace varve {

Status HeldParts::read(std::span<const PartRead> reads) {
  for (const PartRead& each : reads) VARVE_TRY(read_part(each));
  return {};
}

}  // namespace varve
