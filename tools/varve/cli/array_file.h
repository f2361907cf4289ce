#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/bytes.h"
#include "core/cell_box.h"
#include "varve/element_type.h"
#include "varve/status.h"

namespace varve::cli {

/// A file of arrays that other programs read, while it is written. One thread.
class ArrayFile {
 public:
  /// It is lost unless it was finished; then nothing becomes of it here.
  virtual ~ArrayFile() = default;
  /// Begins the next array; the one before is whole. `path`: its name, with the groups above it.
  virtual Status begin(const std::vector<std::string>& path, const ElementType& type,
                       const std::vector<uint64_t>& shape) = 0;
  /// Cells of it, dense, that follow those of the call before.
  virtual Status write(const CellBox& cells, ByteSpan bytes) = 0;
  /// Makes all of it durable.
  virtual Status finish() = 0;
};

enum class ArrayFileKind : uint8_t { npy, hdf5 };

/// What a file of this name is to be: by its ending, ".npy", ".h5" or ".hdf5". invalid_argument: none of them.
Result<ArrayFileKind> array_file_kind(std::string_view path);

/// Makes a file that is not there. unsupported: this build cannot write such files.
Result<std::unique_ptr<ArrayFile>> create_array_file(ArrayFileKind kind, const std::string& path);

/// What NumPy's format, version 1.0, has before an array's bytes
/// (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
std::string npy_header(const ElementType& type, const std::vector<uint64_t>& shape);

/// The names of a variable's groups, and its own: "/Fluid/Density" is {"Fluid", "Density"}. invalid_argument: it has
/// parts that no HDF5 file can name.
Result<std::vector<std::string>> hdf5_path(std::string_view name);
Result<std::unique_ptr<ArrayFile>> create_hdf5_file(const std::string& path);

}  // namespace varve::cli
