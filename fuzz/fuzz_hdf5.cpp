// Any bytes are a valid layout or a Status, for our own parser of plain HDF5 files.
#include <sys/mman.h>
#include <unistd.h>

#include "core/process.h"
#include "fuzz_layout.h"
#include "layout/layout_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  varve::UniqueFd file(::memfd_create("fuzzed", MFD_CLOEXEC));
  if (::write(file.get(), data, size) != static_cast<ssize_t>(size)) return 0;
  varve::FileBlocks blocks;
  blocks.open(varve::read_file_at(file.get()));
  varve::check_fuzzed_layout(varve::read_plain_hdf5(blocks, size), size);
  return 0;
}
