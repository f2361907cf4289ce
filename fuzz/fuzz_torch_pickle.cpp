// Any bytes are a pickle that names some storages, or none.
#include "fuzz_layout.h"
#include "layout/torch_pickle.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  for (const auto& [key, storage] : varve::read_torch_pickle(varve::fuzz_bytes(data, size), varve::ByteOrder::little)) {
    if (key.size() > size || (storage.shape && storage.shape->size() > varve::kDimensionsMax)) std::abort();
  }
  return 0;
}
