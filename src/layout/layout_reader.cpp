#include "layout/layout_reader.h"

namespace varve {

LayoutReaders built_in_readers() {
  LayoutReaders readers;
#ifdef VARVE_WITH_HDF5
  readers.push_back(make_hdf5_reader());
#endif
  readers.push_back(make_netcdf_reader());
  readers.push_back(make_elf_core_reader());
  readers.push_back(make_npy_reader());
  readers.push_back(make_zip_reader());
  readers.push_back(make_torch_stream_reader());
  readers.push_back(make_safetensors_reader());
  // The last one: it has no magic number, and goes by what the lengths of records say.
  readers.push_back(make_fortran_reader());
  return readers;
}

}  // namespace varve
