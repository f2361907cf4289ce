#include "picture.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

#ifdef LBM_WITH_PNG
#include <png.h>
#endif

namespace lbm {

namespace {
/// Some points of the "viridis" scale (Smith and van der Walt, 2015).
constexpr std::array<std::array<float, 3>, 6> kColours{
    {{68, 1, 84}, {65, 68, 135}, {42, 120, 142}, {34, 168, 132}, {122, 209, 81}, {253, 231, 37}}};

std::array<uint8_t, 3> colour(float value) {
  const float place = std::clamp(value, 0.0f, 1.0f) * (kColours.size() - 1);
  const size_t below = std::min<size_t>(static_cast<size_t>(place), kColours.size() - 2);
  const float part = place - static_cast<float>(below);
  std::array<uint8_t, 3> mixed;
  for (size_t i = 0; i < 3; ++i)
    mixed[i] = static_cast<uint8_t>(kColours[below][i] * (1 - part) + kColours[below + 1][i] * part);
  return mixed;
}
}  // namespace

bool write_picture(const std::string& path, std::span<const float> values, uint32_t width, uint32_t height) {
  std::vector<uint8_t> pixels;
  for (uint32_t row = height; row-- > 0;) {
    for (uint32_t column = 0; column < width; ++column) {
      for (uint8_t part : colour(values[static_cast<size_t>(row) * width + column])) pixels.push_back(part);
    }
  }
#ifdef LBM_WITH_PNG
  if (path.ends_with(".png")) {
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    image.format = PNG_FORMAT_RGB;
    image.width = width;
    image.height = height;
    return png_image_write_to_file(&image, path.c_str(), 0, pixels.data(), 0, nullptr) != 0;
  }
#endif
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return false;
  std::fprintf(file, "P6\n%u %u\n255\n", width, height);
  const bool written = std::fwrite(pixels.data(), 1, pixels.size(), file) == pixels.size();
  return std::fclose(file) == 0 && written;
}

}  // namespace lbm
