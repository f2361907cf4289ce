#pragma once

#include <cstddef>
#include <cstdint>

#include "varve/element_type.h"

namespace varve {

/// Adds up by how much elements of one numeric type differ. Integers are subtracted as such, so that no digit is lost
/// before the difference is known.
class ElementDifference {
 public:
  explicit ElementDifference(const ElementType& type) : type_(type) {}
  /// Whether elements of `type` can be subtracted here.
  static bool is_defined_for(const ElementType& type);

  /// Two elements as they lie in their files.
  void add(const std::byte* old_element, const std::byte* new_element);

  /// The largest absolute difference, 0 if there is none. NaN: some difference is not a finite number.
  double largest() const;
  /// The root of the mean square over `element_count` elements, of which those that were not added are equal. NaN
  /// likewise.
  double rms(uint64_t element_count) const;

 private:
  const ElementType type_;
  double largest_ = 0;
  double root_of_squares_ = 0;
  bool finite_ = true;
};

}  // namespace varve
