#include "picture.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>
#include <vector>

#ifdef LBM_WITH_PNG
#include <png.h>
#endif

namespace lbm {

namespace {
/// Some points of the "viridis" scale (Smith and van der Walt, 2015).
constexpr std::array<std::array<float, 3>, 6> kColours{
    {{68, 1, 84}, {65, 68, 135}, {42, 120, 142}, {34, 168, 132}, {122, 209, 81}, {253, 231, 37}}};

/// So many pixels wide or high a picture is at least.
constexpr uint32_t kPixelsMin = 720;

/// The value at a place between cells, whose middles are at 0.5, 1.5, ...: from the four around it.
float value_between(std::span<const float> values, uint32_t width, uint32_t height, float x, float y) {
  const auto split = [](float place, uint32_t count) {
    const float inside = std::clamp(place - 0.5f, 0.0f, static_cast<float>(count - 1));
    const auto below = std::min(static_cast<uint32_t>(inside), count > 1 ? count - 2 : 0);
    return std::pair(below, inside - static_cast<float>(below));
  };
  const auto [column, right] = split(x, width);
  const auto [row, up] = split(y, height);
  const auto at = [&](uint32_t i, uint32_t j) {
    return values[static_cast<size_t>(std::min(j, height - 1)) * width + std::min(i, width - 1)];
  };
  const float lower = at(column, row) * (1 - right) + at(column + 1, row) * right;
  const float upper = at(column, row + 1) * (1 - right) + at(column + 1, row + 1) * right;
  return lower * (1 - up) + upper * up;
}

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
  const uint32_t scale = std::max(1u, (kPixelsMin + std::max(width, height) - 1) / std::max(width, height));
  const uint32_t columns = width * scale, rows = height * scale;
  const auto middle = [scale](uint32_t pixel) {
    return (static_cast<float>(pixel) + 0.5f) / static_cast<float>(scale);
  };
  std::vector<uint8_t> pixels;
  pixels.reserve(size_t{columns} * rows * 3);
  for (uint32_t row = rows; row-- > 0;) {
    for (uint32_t column = 0; column < columns; ++column) {
      const float value = value_between(values, width, height, middle(column), middle(row));
      for (uint8_t part : colour(value)) pixels.push_back(part);
    }
  }
#ifdef LBM_WITH_PNG
  if (path.ends_with(".png")) {
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    image.format = PNG_FORMAT_RGB;
    image.width = columns;
    image.height = rows;
    return png_image_write_to_file(&image, path.c_str(), 0, pixels.data(), 0, nullptr) != 0;
  }
#endif
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return false;
  std::fprintf(file, "P6\n%u %u\n255\n", columns, rows);
  const bool written = std::fwrite(pixels.data(), 1, pixels.size(), file) == pixels.size();
  return std::fclose(file) == 0 && written;
}

}  // namespace lbm
