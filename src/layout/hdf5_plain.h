#pragma once

#include <cstdint>

#include "layout/file_blocks.h"
#include "layout/layout.h"
#include "varve/status.h"

namespace varve {

/// The layout of an HDF5 file of the plain kind that most simulations write: the original format (superblock 0, groups
/// that are symbol tables), and datasets of integers, floats or text of fixed length that are contiguous or compact.
/// The same layout as the library's reader gives, in a fraction of its time.
///
/// unsupported: the file is of another kind, damaged, or has very many objects; the library has to look at it. Safe on
/// any file: all that is read is checked against its bounds, and the work is bounded. Format: "HDF5 File Format
/// Specification Version 3.0".
Result<Layout> read_plain_hdf5(FileBlocks& blocks, uint64_t file_bytes);

}  // namespace varve
