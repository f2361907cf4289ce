#include "level/level_kind.h"

namespace varve {

std::span<const LevelKind* const> level_kinds() {
  static constexpr const LevelKind* kAll[] = {&kMemoryLevel, &kNodeLevel, &kRedundancyLevel,
                                              &kFolderLevel, &kTcpLevel,  &kUnixLevel};
  return kAll;
}

}  // namespace varve
