#pragma once

#include "layout/file_window.h"
#include "layout/layout.h"

namespace varve {

/// The layout of a netCDF file in one of the classic formats: CDF-1, CDF-2 (64-bit offsets) or CDF-5 (64-bit data),
/// after "The NetCDF Classic Format Specification" (Unidata) and its CDF-5 appendix. netCDF-4 files are HDF5.
///
/// A fixed variable is one extent. A record variable has one extent a record, and `run_shape` is then the shape of one
/// record (1 for a plain series); if its records touch, as those of an only record variable do, it is one extent as
/// well. Padding, attributes and the header are skeleton. A record count left open by a streaming writer comes from the
/// file's size. corrupt: not such a file, or it ends before its data. resource_limit: more variables or records than
/// the limits allow.
Result<Layout> read_netcdf_layout(FileWindow& file);

}  // namespace varve
