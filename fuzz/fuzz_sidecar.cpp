// Any text is a valid layout or a Status, for the description beside a raw file and the argument of --raw; and so with
// the places that such a description tells.
#include "core/cell_box.h"
#include "fuzz_layout.h"
#include "layout/raw_layout.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr uint64_t kFileBytes = 10'000;
  std::string_view text = varve::as_text(varve::fuzz_bytes(data, size));
  varve::check_fuzzed_layout(varve::sidecar_layout(text, kFileBytes), kFileBytes);
  if (const auto places = varve::sidecar_places(text); places.ok()) {
    for (const varve::SidecarPlace& place : *places) {
      const varve::CellBox nothing{place.global_offset, std::vector<uint64_t>(place.global_shape.size())};
      if (!varve::lies_in(nothing, place.global_shape) || !varve::array_bytes(place.global_shape, 1)) std::abort();
    }
  }
  if (auto description = varve::parse_raw_description(text); description.ok()) {
    varve::check_fuzzed_layout(varve::raw_layout(*description, kFileBytes, "/file"), kFileBytes);
  }
  return 0;
}
