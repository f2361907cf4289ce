#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace lbm {

/// What one would do without a checkpoint library: writes `data` to a file of its own, synced and renamed, at
/// `bytes_per_second` at most (0: as fast as it goes). Throws std::system_error.
void write_plain_file(const std::string& path, std::span<const double> data, double bytes_per_second);

}  // namespace lbm
