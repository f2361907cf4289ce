#include "codec/numbers.h"

#include <algorithm>
#include <bit>

namespace varve {

namespace {

/// All that a run, which is in a pack, can see of a dimension: where its second row would begin, or that there is none.
constexpr uint64_t kDimensionMax = kPackBytesMax;

/// The product of the dimensions, or more than any pack holds.
uint64_t saturated_product(const NumberRun& run) {
  constexpr uint64_t too_many = kPackBytesMax + 1;
  uint64_t product = 1;
  for (size_t i = 0; i < run.dimension_count; ++i) {
    if (run.dims[i] != 0 && product > too_many / run.dims[i]) return too_many;
    product *= run.dims[i];
  }
  return product;
}

NumberRun number_run(const Run& run, uint64_t elements) {
  NumberRun result;
  result.elements = elements;
  uint64_t stride = 1;
  result.dimension_count = 0;
  for (uint64_t dim : run.dims) {
    // A dimension of which the run does not see a second row predicts nothing.
    if (result.dimension_count == kPredictedDimensionsMax || dim == 0 || stride >= elements) break;
    result.dims[result.dimension_count++] = std::min(dim, kDimensionMax);
    stride = dim > kPackBytesMax / stride ? kPackBytesMax : stride * dim;
  }
  if (result.dimension_count == 0) {
    result.dims[0] = elements;
    result.dimension_count = 1;
  }
  result.whole = elements > 0 && saturated_product(result) == elements;
  return result;
}

}  // namespace

bool is_machine_number(const ElementType& type) {
  return type.numeric() && type.bytes <= 8 && std::has_single_bit(type.bytes) &&
         (type.kind != ElementKind::floating || type.bytes >= 2);
}

kernels::NumberFormat number_format(const ElementType& type) {
  return {.bytes = type.bytes,
          .big_endian = type.bytes > 1 && type.order == ByteOrder::big,
          .floating = type.kind == ElementKind::floating};
}

std::vector<NumberRun> number_runs(const PackShape& shape, uint64_t elements) {
  std::vector<NumberRun> runs;
  uint64_t left = elements;
  uint64_t joined = 0;  // elements of short runs that wait to become one
  const auto flush = [&] {
    if (joined > 0) runs.push_back(number_run({}, joined));
    joined = 0;
  };
  for (const Run& run : shape.runs) {
    if (left == 0) break;
    const uint64_t taken = std::min(run.elements, left);
    left -= taken;
    if (taken < kRunElementsMin) {
      joined += taken;
      continue;
    }
    flush();
    runs.push_back(number_run(run, taken));
  }
  joined += left;
  flush();
  return runs;
}

std::vector<kernels::DifferenceRun> difference_runs(const std::vector<NumberRun>& runs, size_t dimensions_max) {
  std::vector<kernels::DifferenceRun> result;
  result.reserve(runs.size());
  for (const NumberRun& run : runs) {
    kernels::DifferenceRun difference{.elements = run.elements};
    uint64_t stride = 1;
    for (size_t i = 0;
         i < std::min(run.dimension_count, dimensions_max) && stride < std::max<uint64_t>(run.elements, 2); ++i) {
      difference.strides[difference.stride_count++] = stride;
      stride *= run.dims[i];
    }
    result.push_back(difference);
  }
  return result;
}

uint8_t pack_number_format(kernels::NumberFormat format) {
  return static_cast<uint8_t>(std::countr_zero(format.bytes) | (format.big_endian ? 4 : 0) | (format.floating ? 8 : 0));
}

Result<kernels::NumberFormat> unpack_number_format(uint8_t code) {
  if (code > 15) return Status::corrupt("unknown number format");
  const kernels::NumberFormat format{
      .bytes = 1u << (code & 3), .big_endian = (code & 4) != 0, .floating = (code & 8) != 0};
  if (format.bytes == 1 && (format.big_endian || format.floating)) return Status::corrupt("unknown number format");
  return format;
}

void write_runs(ByteWriter& writer, const std::vector<NumberRun>& runs) {
  for (size_t at = 0; at < runs.size();) {
    size_t end = at + 1;
    while (end < runs.size() && runs[end] == runs[at]) ++end;
    writer.varint((end - at) << 3 | runs[at].dimension_count << 1 | (runs[at].whole ? 1 : 0));
    for (size_t i = 0; i < runs[at].dimension_count; ++i) writer.varint(runs[at].dims[i]);
    if (!runs[at].whole) writer.varint(runs[at].elements);
    at = end;
  }
}

Result<std::vector<NumberRun>> read_runs(ByteReader& reader, uint64_t elements) {
  std::vector<NumberRun> runs;
  uint64_t left = elements;
  while (left > 0) {
    VARVE_ASSIGN(const uint64_t head, reader.varint());
    NumberRun run;
    run.whole = (head & 1) != 0;
    run.dimension_count = head >> 1 & 3;
    if (run.dimension_count == 0) return Status::corrupt("a run has no dimension");
    for (size_t i = 0; i < run.dimension_count; ++i) {
      VARVE_ASSIGN(const uint64_t dim, reader.varint());
      // Larger ones were written once, and mean the same.
      if (dim == 0 || (run.whole && dim > kDimensionMax)) return Status::corrupt("a run's dimension is out of range");
      run.dims[i] = std::min(dim, kDimensionMax);
    }
    if (run.whole) {
      run.elements = saturated_product(run);
    } else {
      VARVE_ASSIGN(run.elements, reader.varint());
    }
    const uint64_t repetitions = head >> 3;
    if (run.elements == 0 || repetitions == 0 || repetitions > left / run.elements) {
      return Status::corrupt("runs and pack differ in size");
    }
    if (repetitions > runs_max(elements) - runs.size()) return Status::corrupt("a pack has too many runs");
    runs.insert(runs.end(), repetitions, run);
    left -= repetitions * run.elements;
  }
  return runs;
}

bool seems_text(ByteSpan bytes) {
  constexpr size_t places = 16, place_bytes = 256;
  const auto is_text = [](std::byte byte) {
    const auto character = static_cast<unsigned char>(byte);
    return character <= 0x7e && (character >= 0x20 || character == '\n' || character == '\t' || character == '\r');
  };
  const size_t gap = bytes.size() / places;
  for (size_t place = 0; place < places; ++place) {
    const ByteSpan looked_at = bytes.subspan(place * gap, std::min(gap, place_bytes));
    if (!std::all_of(looked_at.begin(), looked_at.end(), is_text)) return false;
  }
  return true;
}

}  // namespace varve
