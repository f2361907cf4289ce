#pragma once

#include <string>
#include <string_view>

#include "codec/chooser.h"

namespace varve {

/// The key of the class that the skeletons of files of a format are in. Those of variables do not begin like that:
/// names begin with a slash.
inline std::string skeleton_class(std::string_view format) { return "skeleton/" + std::string(format); }

inline PackContents contents_of_class(std::string_view class_key) {
  return class_key.starts_with("skeleton/") ? PackContents::skeletons : PackContents::variables;
}

}  // namespace varve
