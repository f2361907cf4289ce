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

/// The type of the elements in packs of this class, BYTES if its key names none.
inline ElementType element_type_of_class(std::string_view class_key) {
  const size_t mark = class_key.rfind("_Array");
  if (mark == std::string_view::npos || mark == 0) return {};
  const size_t begin = class_key.rfind('_', mark - 1) + 1;
  const Result<ElementType> named = ElementType::parse(class_key.substr(begin, mark - begin));
  return named.ok() ? *named : ElementType{};
}

}  // namespace varve
