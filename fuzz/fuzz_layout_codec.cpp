// Any bytes are a layout or a Status, for the decoding of what a reader process answers; and what was decoded encodes
// again.
#include <cstdlib>

#include "fuzz_layout.h"
#include "layout/layout.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  varve::ByteReader in(varve::fuzz_bytes(data, size));
  auto layout = varve::decode_layout(in);
  varve::check_fuzzed_layout(layout, size);
  if (!layout.ok()) return 0;
  varve::ByteVector encoded;
  varve::ByteWriter out(encoded);
  varve::encode_layout(*layout, out);
  varve::ByteReader again(encoded);
  auto twice = varve::decode_layout(again);
  if (!twice.ok() || !(*twice == *layout)) std::abort();
  return 0;
}
