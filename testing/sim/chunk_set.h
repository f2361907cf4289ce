#pragma once

#include <cstdint>
#include <vector>

#include "core/progress.h"
#include "store/catalog.h"

namespace varve::sim {

/// Chunks by their numbers: each number stands for kNumberedBytes bytes of its own, which do not shrink.
using Numbers = std::vector<uint64_t>;
inline constexpr uint32_t kNumberedBytes = 512;

/// Saves a set of one file that consists of these chunks, as a save of a folder does.
Status save_numbers(const Store& store, const SetName& name, const Numbers& numbers);
/// The same in the place of whatever has the name, as a run does that went back; its record is given.
Result<SetRecord> save_numbers_anew(const Store& store, const SetName& name, const Numbers& numbers);

/// OK if the set is there and its file consists of these chunks; internal if it has other bytes.
Status check_numbers(const Store& store, const SetName& name, const Numbers& numbers);

}  // namespace varve::sim
