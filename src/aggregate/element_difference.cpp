#include "aggregate/element_difference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/bytes.h"

namespace varve {

namespace {
constexpr size_t kElementBytesMax = 8;

/// An element in the byte order of load_le().
struct Element {
  std::byte raw[kElementBytesMax];

  Element(const std::byte* at, const ElementType& type) {
    std::memcpy(raw, at, type.bytes);
    if (type.order == ByteOrder::big) std::reverse(raw, raw + type.bytes);
  }
};

/// Fits even for the two ends of a type's range.
template <class Integer>
uint64_t distance(const Element& a, const Element& b) {
  const auto x = load_le<Integer>(a.raw), y = load_le<Integer>(b.raw);
  return x > y ? static_cast<uint64_t>(x) - static_cast<uint64_t>(y)
               : static_cast<uint64_t>(y) - static_cast<uint64_t>(x);
}

uint64_t integer_distance(const Element& a, const Element& b, const ElementType& type) {
  const bool is_signed = type.kind == ElementKind::signed_integer;
  switch (type.bytes) {
    case 1: return is_signed ? distance<int8_t>(a, b) : distance<uint8_t>(a, b);
    case 2: return is_signed ? distance<int16_t>(a, b) : distance<uint16_t>(a, b);
    case 4: return is_signed ? distance<int32_t>(a, b) : distance<uint32_t>(a, b);
    default: return is_signed ? distance<int64_t>(a, b) : distance<uint64_t>(a, b);
  }
}

double floating_distance(const Element& a, const Element& b, const ElementType& type) {
  if (type.bytes == 4) return std::abs(double(load_le<float>(a.raw)) - double(load_le<float>(b.raw)));
  return std::abs(load_le<double>(a.raw) - load_le<double>(b.raw));
}
}  // namespace

bool ElementDifference::is_defined_for(const ElementType& type) {
  if (!type.numeric()) return false;
  if (type.kind == ElementKind::floating) return type.bytes == 4 || type.bytes == 8;
  return type.bytes == 1 || type.bytes == 2 || type.bytes == 4 || type.bytes == 8;
}

void ElementDifference::add(const std::byte* old_element, const std::byte* new_element) {
  const Element a(old_element, type_), b(new_element, type_);
  const double difference = type_.kind == ElementKind::floating ? floating_distance(a, b, type_)
                                                                : static_cast<double>(integer_distance(a, b, type_));
  if (!std::isfinite(difference)) {
    finite_ = false;
    return;
  }
  largest_ = std::max(largest_, difference);
  root_of_squares_ = std::hypot(root_of_squares_, difference);  // the squares themselves could overflow
}

double ElementDifference::largest() const { return finite_ ? largest_ : std::numeric_limits<double>::quiet_NaN(); }

double ElementDifference::rms(uint64_t element_count) const {
  if (!finite_) return std::numeric_limits<double>::quiet_NaN();
  return element_count == 0 ? 0 : root_of_squares_ / std::sqrt(static_cast<double>(element_count));
}

}  // namespace varve
