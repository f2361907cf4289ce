#include "snapshot/strided_region.h"

#include <algorithm>
#include <cstring>
#include <ranges>

namespace varve {

uint64_t StridedRegion::bytes() const {
  uint64_t product = row_bytes;
  for (const RowStep& step : steps) product *= step.count;
  return product;
}

std::optional<uint64_t> StridedRegion::extent_bytes() const {
  uint64_t dense = row_bytes;
  uint64_t end = first_byte;
  if (__builtin_add_overflow(end, row_bytes, &end)) return std::nullopt;
  bool empty = row_bytes == 0;
  for (const RowStep& step : steps) {
    if (__builtin_mul_overflow(dense, step.count, &dense)) return std::nullopt;
    empty = empty || step.count == 0;
    uint64_t reach = 0;
    if (step.count > 1 && (__builtin_mul_overflow(step.count - 1, step.stride_bytes, &reach) ||
                           __builtin_add_overflow(end, reach, &end))) {
      return std::nullopt;
    }
  }
  return empty ? 0 : end;
}

uint64_t StridedRegion::locate(uint64_t dense_offset, uint64_t& run_bytes) const {
  const uint64_t in_row = dense_offset % row_bytes;
  uint64_t row = dense_offset / row_bytes;
  run_bytes = row_bytes - in_row;
  uint64_t at = first_byte + in_row;
  for (const RowStep& step : std::views::reverse(steps)) {
    at += (row % step.count) * step.stride_bytes;
    row /= step.count;
  }
  return at;
}

StridedRegion saved_region(const ArrayShape& shape, uint64_t element_bytes) {
  StridedRegion region{.first_byte = 0, .row_bytes = element_bytes, .steps = {}};
  uint64_t stride = element_bytes;
  std::vector<RowStep> fastest_first;
  for (size_t d = shape.cells.size(); d-- > 0;) {
    const uint64_t low = shape.ghosts_low.empty() ? 0 : shape.ghosts_low[d];
    const uint64_t high = shape.ghosts_high.empty() ? 0 : shape.ghosts_high[d];
    const uint64_t saved = shape.cells[d] - low - high;
    region.first_byte += low * stride;
    if (fastest_first.empty() && stride == region.row_bytes) {
      region.row_bytes *= saved;  // all faster dimensions are saved whole: rows follow each other
    } else if (saved != 1) {
      fastest_first.push_back({saved, stride});
    }
    stride *= shape.cells[d];
  }
  region.steps.assign(fastest_first.rbegin(), fastest_first.rend());
  return region;
}

namespace {

/// Calls visit(place from the base, dense offset, bytes) for each run of bytes [dense_offset, end).
template <class Visit>
void for_each_run(const StridedRegion& region, uint64_t dense_offset, uint64_t end, const Visit& visit) {
  while (dense_offset < end) {
    uint64_t run_bytes = 0;
    uint64_t at = region.locate(dense_offset, run_bytes);
    // Rows of the fastest step are found by adding: the division of locate() costs more than a short row's copy.
    uint64_t rows = 1, stride_bytes = 0;
    if (!region.dense()) {
      const RowStep& step = region.steps.back();
      rows = step.count - dense_offset / region.row_bytes % step.count;
      stride_bytes = step.stride_bytes;
    }
    for (; rows > 0 && dense_offset < end; --rows) {
      const uint64_t bytes = std::min(run_bytes, end - dense_offset);
      visit(at, dense_offset, bytes);
      dense_offset += bytes;
      at += stride_bytes - (region.row_bytes - run_bytes);  // to the beginning of the next row
      run_bytes = region.row_bytes;
    }
  }
}

}  // namespace

void gather(const std::byte* base, const StridedRegion& region, uint64_t dense_offset, MutableByteSpan into) {
  const uint64_t begin = dense_offset;
  for_each_run(region, dense_offset, begin + into.size(), [&](uint64_t at, uint64_t dense, uint64_t bytes) {
    std::memcpy(into.data() + (dense - begin), base + at, bytes);
  });
}

void scatter(std::byte* base, const StridedRegion& region, uint64_t dense_offset, ByteSpan from) {
  const uint64_t begin = dense_offset;
  for_each_run(region, dense_offset, begin + from.size(), [&](uint64_t at, uint64_t dense, uint64_t bytes) {
    std::memcpy(base + at, from.data() + (dense - begin), bytes);
  });
}

}  // namespace varve
