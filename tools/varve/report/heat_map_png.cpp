#include "report/heat_map_png.h"

#ifdef VARVE_WITH_PNG
#include <png.h>
#endif

#include <algorithm>
#include <array>
#include <cmath>

#include "study/change_map.h"

namespace varve {

#ifdef VARVE_WITH_PNG
namespace {
constexpr size_t kPixelsMin = 1024;  // a side, so that cells can be seen

using Colour = std::array<uint8_t, 3>;
constexpr std::array<Colour, 10> kViridis = {{{0x44, 0x01, 0x54},
                                              {0x48, 0x28, 0x78},
                                              {0x3e, 0x4a, 0x89},
                                              {0x31, 0x68, 0x8e},
                                              {0x26, 0x82, 0x8e},
                                              {0x1f, 0x9e, 0x89},
                                              {0x35, 0xb7, 0x79},
                                              {0x6e, 0xce, 0x58},
                                              {0xb5, 0xde, 0x2b},
                                              {0xfd, 0xe7, 0x25}}};

uint32_t viridis(double share) {
  const double at = std::clamp(share, 0.0, 1.0) * (kViridis.size() - 1);
  const size_t low = std::min<size_t>(static_cast<size_t>(at), kViridis.size() - 2);
  uint32_t pixel = 0xff;
  for (size_t i = 3; i-- > 0;) {
    const double from = kViridis[low][i], to = kViridis[low + 1][i];
    pixel = pixel << 8 | static_cast<uint32_t>(std::lround(from + (to - from) * (at - static_cast<double>(low))));
  }
  return pixel;
}
}  // namespace

Result<std::string> heat_map_png(const ChangeMap& map) {
  const size_t side = size_t{1} << map.order;
  const size_t scale = std::max<size_t>(kPixelsMin / side, 1), width = side * scale;
  std::vector<uint32_t> pixels(width * width);  // red in the lowest byte, as libpng wants them, on this byte order
  const double most = static_cast<double>(std::max<size_t>(map.comparisons, 1));
  for (size_t cell = 0; cell < map.cells.size(); ++cell) {
    const CurvePoint point = hilbert_point(map.order, cell);
    const uint32_t pixel = viridis(map.cells[cell].changes / most);
    for (size_t y = 0; y < scale; ++y) {
      auto begin = pixels.begin() + static_cast<ptrdiff_t>((point.y * scale + y) * width + point.x * scale);
      std::fill(begin, begin + static_cast<ptrdiff_t>(scale), pixel);
    }
  }
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.width = image.height = static_cast<png_uint_32>(width);
  image.format = PNG_FORMAT_RGBA;
  png_alloc_size_t bytes = 0;
  if (png_image_write_to_memory(&image, nullptr, &bytes, 0, pixels.data(), 0, nullptr) == 0)
    return Status::internal(image.message);
  std::string png(bytes, '\0');
  if (png_image_write_to_memory(&image, png.data(), &bytes, 0, pixels.data(), 0, nullptr) == 0)
    return Status::internal(image.message);
  png.resize(bytes);
  return png;
}
#else
Result<std::string> heat_map_png(const ChangeMap& /*map*/) {
  return Status::unsupported("this program was built without libpng", "", "the page has the same picture");
}
#endif

}  // namespace varve
