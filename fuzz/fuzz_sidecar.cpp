// Any text is a valid layout or a Status, for the description beside a raw file and the argument of --raw.
#include "fuzz_layout.h"
#include "layout/raw_layout.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr uint64_t kFileBytes = 10'000;
  std::string_view text = varve::as_text(varve::fuzz_bytes(data, size));
  varve::check_fuzzed_layout(varve::sidecar_layout(text, kFileBytes), kFileBytes);
  if (auto description = varve::parse_raw_description(text); description.ok()) {
    varve::check_fuzzed_layout(varve::raw_layout(*description, kFileBytes, "/file"), kFileBytes);
  }
  return 0;
}
