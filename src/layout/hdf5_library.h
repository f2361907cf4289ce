#pragma once

// What is shared by the files that call the HDF5 library: in the API of 1.10, which later versions keep.
#define H5_USE_110_API
#include <hdf5.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "layout/file_window.h"
#include "layout/layout.h"
#include "varve/element_type.h"
#include "varve/status.h"

namespace varve::hdf5 {

/// An identifier of the library, closed by whatever closes its kind.
class Handle {
 public:
  using Closer = herr_t (*)(hid_t);
  Handle(hid_t id, Closer closer) : id_(id), closer_(closer) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), closer_(other.closer_) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(closer_, other.closer_);
    return *this;
  }
  ~Handle() {
    if (id_ >= 0) closer_(id_);
  }
  bool valid() const { return id_ >= 0; }
  hid_t get() const { return id_; }

 private:
  hid_t id_;
  Closer closer_;
};

/// A failure of the library in its own words: the innermost message of its error stack.
Status library_error(std::string_view operation, std::string subject = {});

/// A file as our driver has it, which reads through FileBlocks (no path, no file lock), and can tell where a chunk lies
/// without reading it. The library owns the H5FD_t and hands it back to every call; the rest lives as long.
struct DriverFile {
  H5FD_t library_part{};  // first, so that a pointer to it is a pointer to all
  haddr_t file_bytes = 0;
  haddr_t end_of_address = 0;
  FileBlocks* blocks = nullptr;
  bool locating = false;          ///< note where raw data would be read, and do not read them
  std::optional<Extent> located;  ///< the last place so noted
};

/// A file that is open for reading.
struct OpenFile {
  Handle file{-1, H5Fclose};
  DriverFile* driver = nullptr;  ///< lives as long as the file
};

/// Opens files. One thread at a time.
class FileOpener {
 public:
  /// `blocks` outlives the file.
  Result<OpenFile> open(FileBlocks& blocks, uint64_t file_bytes);

 private:
  Status start_library();

  Handle access_{-1, H5Pclose};
};

/// A type of the library as one of ours.
struct MappedType {
  ElementType element;
  std::vector<uint64_t> inner_shape;  ///< of an array type
  bool encoded = false;               ///< references into a heap: the elements' bytes are not the data
};
Status map_type(hid_t type, MappedType& mapped);

/// `name`: of the dataset whose space it is, for messages.
Result<std::vector<uint64_t>> shape_of(hid_t space, const std::string& name);

}  // namespace varve::hdf5
