#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "layout/file_window.h"
#include "layout/layout.h"
#include "varve/status.h"

namespace varve {

inline constexpr std::string_view kNpyMagic = "\x93NUMPY";

/// What an array in a file that numpy.save() has written is called: only the file's name says what it is.
inline constexpr std::string_view kNpyArrayName = "/array";

/// The array that numpy has saved at `place` of a file ("NEP 1: A Simple File Format for NumPy Arrays", versions 1.0 to
/// 3.0): its header, then its elements. What follows them at `place` is not looked at.
///
/// An array in Fortran's order has its shape reversed: the slowest dimension comes first. Records (structured types)
/// are opaque elements of their size, and objects are bytes: both are taken for all that `place` has. corrupt: no such
/// array, or `place` ends before it does.
Result<Variable> read_npy_array(FileWindow& file, Extent place, std::string name);

}  // namespace varve
