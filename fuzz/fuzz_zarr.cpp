// Any text is the description of an array of Zarr, or a Status; a chunk of such an array has a valid layout.
#include "fuzz_layout.h"
#include "layout/zarr_array.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = varve::as_text(varve::fuzz_bytes(data, size));
  for (const varve::Result<varve::ZarrArray>& array :
       {varve::parse_zarr2_array(text), varve::parse_zarr3_array(text)}) {
    if (!array.ok()) continue;
    for (const std::string_view name : {std::string_view("1.2"), std::string_view("c/0/1"), text})
      static_cast<void>(varve::zarr_chunk_place(*array, name));
    uint64_t plain_bytes = 1;
    for (const uint64_t extent : array->chunk_shape) plain_bytes *= extent % 1024;
    for (const uint64_t bytes : {uint64_t{0}, uint64_t{77}, plain_bytes, 8 * plain_bytes}) {
      const varve::Layout layout = varve::zarr_chunk_layout(*array, "/array", bytes);
      if (!validate_layout(layout, bytes).ok()) std::abort();
      varve::check_fuzzed_layout(layout, bytes);
    }
  }
  return 0;
}
