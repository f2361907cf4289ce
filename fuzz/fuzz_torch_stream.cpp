// Any bytes are a valid layout or a Status, for the parser of torch's older files.
#include "fuzz_layout.h"
#include "layout/layout_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  varve::FileWindow file(varve::fuzz_bytes(data, size));
  varve::check_fuzzed_layout(varve::read_torch_stream_layout(file), size);
  return 0;
}
