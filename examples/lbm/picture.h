#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace lbm {

/// Writes values between 0 and 1 as a picture, in colours from dark blue to yellow, the last row on top, large enough
/// to look at (720 pixels wide or high at least): PNG if the program was built with libpng and the name ends in .png,
/// else PPM. False if it cannot be written.
bool write_picture(const std::string& path, std::span<const float> values, uint32_t width, uint32_t height);

}  // namespace lbm
