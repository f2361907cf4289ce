#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/bytes.h"
#include "layout/layout.h"
#include "varve/status.h"

namespace varve {

/// Says where the variables of one file format lie. It never copies data and never follows a reference out of the file.
/// Readers keep no state between files; one thread at a time.
class LayoutReader {
 public:
  virtual ~LayoutReader() = default;

  /// For messages: "HDF5".
  virtual std::string_view name() const = 0;

  /// Whether the file looks like this format, by its magic number. `first_bytes` are its first kProbeBytes (all of a
  /// shorter file). Runs in the caller's own process: cheap, and safe on any file.
  virtual bool recognises(int fd, ByteSpan first_bytes, uint64_t file_bytes) const = 0;

  /// The layout, if the reader can tell it on its own: without a library, in bounded time and memory, and without
  /// crashing on any file. unsupported: read() has to be asked. Runs in the caller's own process and may be used by
  /// several threads.
  virtual Result<Layout> read_safely(int /*fd*/, uint64_t /*file_bytes*/) const {
    return Status::unsupported("no reader of our own");
  }

  /// The layout of the file open at `fd` for reading, which is `file_bytes` long. The result is not validated yet.
  /// A reader may crash, hang or eat memory on a hostile file: LayoutService runs it in a process of its own.
  virtual Result<Layout> read(int fd, uint64_t file_bytes) const = 0;
};

/// How much of a file is read to find out its format.
inline constexpr size_t kProbeBytes = 4096 + 8;

using LayoutReaders = std::vector<std::unique_ptr<LayoutReader>>;

/// The formats of this build, in the order in which they are tried.
LayoutReaders built_in_readers();

std::unique_ptr<LayoutReader> make_netcdf_reader();
std::unique_ptr<LayoutReader> make_elf_core_reader();
#ifdef VARVE_WITH_HDF5
std::unique_ptr<LayoutReader> make_hdf5_reader();
#endif

}  // namespace varve
