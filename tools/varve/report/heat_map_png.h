#pragma once

#include <string>

#include "study/change_map.h"

namespace varve {

/// The map as a picture in the PNG format: along its Hilbert curve, viridis from never to always; transparent where
/// the curve has no cell. unsupported: this program was built without libpng.
Result<std::string> heat_map_png(const ChangeMap& map);

}  // namespace varve
