#include "layout/layout_reader.h"

namespace varve {

LayoutReaders built_in_readers() {
  LayoutReaders readers;
#ifdef VARVE_WITH_HDF5
  readers.push_back(make_hdf5_reader());
#endif
  readers.push_back(make_netcdf_reader());
  readers.push_back(make_elf_core_reader());
  return readers;
}

}  // namespace varve
