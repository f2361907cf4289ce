// What a node says of its files, as a server takes it apart. The rest of the library is not instrumented.
#include <cstdlib>

#include "serve/offer.h"

using namespace varve;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Result<OfferedFiles> offered = decode_offered_files({reinterpret_cast<const std::byte*>(data), size});
  // What was understood is sent the same way.
  if (offered.ok() && !decode_offered_files(encode_offered_files(*offered)).ok()) std::abort();
  return 0;
}
