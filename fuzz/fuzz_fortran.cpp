// Any bytes are a valid layout or a Status, for what looks for Fortran's records.
#include <algorithm>

#include "fuzz_layout.h"
#include "layout/layout_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const varve::ByteSpan whole = varve::fuzz_bytes(data, size);
  varve::FileBlocks blocks;
  blocks.open([whole](uint64_t offset, varve::MutableByteSpan into) -> varve::Result<uint64_t> {
    const varve::ByteSpan left = whole.subspan(std::min<uint64_t>(offset, whole.size()));
    const uint64_t count = std::min(left.size(), into.size());
    std::copy_n(left.begin(), count, into.begin());
    return count;
  });
  varve::check_fuzzed_layout(varve::read_fortran_layout(blocks, size), size);
  return 0;
}
