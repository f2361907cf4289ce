#include "level/byte_swaps.h"

#include <algorithm>

namespace varve {

namespace {
constexpr uint64_t kTurnedBytes = 64_KiB;

/// What of the bytes that it gets lies in a window.
class WindowTarget final : public ImageTarget {
 public:
  WindowTarget(uint64_t offset, MutableByteSpan window) : offset_(offset), window_(window) {}
  void put(uint64_t offset, ByteSpan bytes) override {
    const uint64_t begin = std::max(offset, offset_);
    const uint64_t end = std::min(offset + bytes.size(), offset_ + window_.size());
    if (begin >= end) return;
    const ByteSpan inside = bytes.subspan(begin - offset, end - begin);
    std::copy(inside.begin(), inside.end(), window_.begin() + static_cast<ptrdiff_t>(begin - offset_));
  }

 private:
  const uint64_t offset_;
  const MutableByteSpan window_;
};
}  // namespace

void ByteSwaps::add(const Extent& numbers, uint32_t number_bytes) {
  if (numbers.bytes == 0) return;
  const uint64_t end = numbers.offset + numbers.bytes;
  arrays_[end] = {numbers.offset, end, number_bytes};
}

const ByteSwaps::Array* ByteSwaps::array_at(uint64_t offset) const {
  const auto found = arrays_.upper_bound(offset);
  return found == arrays_.end() ? nullptr : &found->second;
}

void ByteSwaps::put(uint64_t offset, ByteSpan bytes, ImageTarget& target) const {
  ByteVector turned;
  while (!bytes.empty()) {
    const Array* const array = array_at(offset);
    uint64_t taken = bytes.size();
    if (array == nullptr || offset < array->begin) {
      if (array != nullptr) taken = std::min(taken, array->begin - offset);
      target.put(offset, bytes.first(taken));
    } else if (const uint64_t size = array->number_bytes, in_number = (offset - array->begin) % size;
               in_number > 0 || taken < size) {
      taken = 1;
      target.put(offset - in_number + (size - 1 - in_number), bytes.first(1));
    } else {
      taken = std::min({taken, array->end - offset, kTurnedBytes}) / size * size;
      turned.assign(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(taken));
      for (auto at = turned.begin(); at != turned.end(); at += static_cast<ptrdiff_t>(size))
        std::reverse(at, at + static_cast<ptrdiff_t>(size));
      target.put(offset, turned);
    }
    offset += taken;
    bytes = bytes.subspan(taken);
  }
}

Status ByteSwaps::read(uint64_t offset, MutableByteSpan into, const Read& read) const {
  if (into.empty()) return {};
  uint64_t begin = offset, end = offset + into.size();
  const Array *const first = array_at(begin), *const last = array_at(end - 1);
  const bool begins_inside = first != nullptr && begin >= first->begin;
  const bool ends_inside = last != nullptr && end > last->begin;
  if (first == last && !begins_inside && !ends_inside) return read(offset, into);
  if (begins_inside) begin -= (begin - first->begin) % first->number_bytes;
  // An array ends with a whole number.
  if (ends_inside) end += (last->end - end) % last->number_bytes;
  ByteVector whole(end - begin);
  VARVE_TRY(read(begin, whole));
  WindowTarget window(offset, into);
  put(begin, whole, window);
  return {};
}

}  // namespace varve
