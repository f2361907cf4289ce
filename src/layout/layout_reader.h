#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "core/bytes.h"
#include "core/cell_box.h"
#include "layout/file_window.h"
#include "layout/layout.h"
#include "varve/status.h"

namespace varve {

/// Cells of an array of a file, which its layout has told.
struct WantedBox {
  const Variable& array;
  CellBox box;  ///< lies in its shape
};

/// An open file whose format keeps the cells of its arrays so that a library has to decode them. One thread at a time.
class EncodedFile {
 public:
  virtual ~EncodedFile() = default;
  /// Whether read() could give cells of this array, as far as can be told without reading them. corrupt: the file has
  /// no such array. unsupported: its elements, or what they are encoded by, are of a kind that cannot be read.
  virtual Status check(const Variable& array) = 0;
  /// Fills `into`, of exactly their size, with cells: dense, slowest dimension first, in the type that the array's
  /// layout says, in its byte order. Cells that were never written are as the format says.
  virtual Status read(const WantedBox& wanted, MutableByteSpan into) = 0;
};

/// Says where the variables of one file format lie. It never copies data and never follows a reference out of the file.
/// Readers keep no state between files; one thread at a time.
class LayoutReader {
 public:
  virtual ~LayoutReader() = default;

  /// For messages: "HDF5".
  virtual std::string_view name() const = 0;

  /// Whether the file looks like this format, by its magic number. `first_bytes` are its first kProbeBytes (all of a
  /// shorter file); `read` has the others. Runs in the caller's own process: cheap, and safe on any file.
  virtual bool recognises(const ReadAt& read, ByteSpan first_bytes, uint64_t file_bytes) const = 0;

  /// The layout, if the reader can tell it on its own: without a library, in bounded time and memory, and without
  /// crashing on any file. unsupported: read() has to be asked. Runs in the caller's own process and may be used by
  /// several threads.
  virtual Result<Layout> read_safely(const ReadAt& /*read*/, uint64_t /*file_bytes*/) const {
    return Status::unsupported("no reader of our own");
  }

  /// The layout of the file open at `fd` for reading, which is `file_bytes` long. The result is not validated yet.
  /// A reader may crash, hang or eat memory on a hostile file: LayoutService runs it in a process of its own. Unless it
  /// needs a library, it is read_safely().
  virtual Result<Layout> read(int fd, uint64_t file_bytes) const { return read_safely(read_file_at(fd), file_bytes); }

  /// The file's arrays, of a format whose library decodes them. It may crash, hang or eat memory, too: DecodingService
  /// runs it in a process of its own. unsupported: the reader decodes nothing.
  virtual Result<std::unique_ptr<EncodedFile>> open_encoded(ReadAt /*read*/, uint64_t /*file_bytes*/) const {
    return Status::unsupported("no library that decodes arrays of this format");
  }
};

/// How much of a file is read to find out its format.
inline constexpr size_t kProbeBytes = 4096 + 8;

using LayoutReaders = std::vector<std::unique_ptr<LayoutReader>>;

/// The formats of this build, in the order in which they are tried.
LayoutReaders built_in_readers();

/// The layout of a file that lies somewhere in memory, as far as one of the readers can tell it on its own
/// (read_safely); it is valid. None: it is one run of bytes.
std::optional<Layout> read_layout_safely(const LayoutReaders& readers, const ReadAt& read, uint64_t file_bytes);

std::unique_ptr<LayoutReader> make_netcdf_reader();
std::unique_ptr<LayoutReader> make_elf_core_reader();
std::unique_ptr<LayoutReader> make_npy_reader();
std::unique_ptr<LayoutReader> make_zip_reader();
std::unique_ptr<LayoutReader> make_torch_stream_reader();
std::unique_ptr<LayoutReader> make_safetensors_reader();
std::unique_ptr<LayoutReader> make_fortran_reader();
#ifdef VARVE_WITH_HDF5
std::unique_ptr<LayoutReader> make_hdf5_reader();
/// The arrays of an HDF5 file by the library, which decodes whatever its filters are (LayoutReader::open_encoded).
/// Elements that refer to elsewhere, and data in other files, are unsupported.
Result<std::unique_ptr<EncodedFile>> open_encoded_hdf5(ReadAt read, uint64_t file_bytes);
#endif

/// The layout of an ELF core dump (System V ABI, "Program Header"; core(5)), 32- or 64-bit, either byte order.
///
/// Each PT_LOAD segment with bytes in the file is a variable of BYTES. Its name stays the same in the next dump of the
/// program:
/// `/segment/r-x/libfoo.so+0x1000` if an NT_FILE note tells which file's bytes were mapped there, else
/// `/segment/rw-/anonymous-3`, the third one with these permissions in address order; a repeated name gets `#2`, `#3`,
/// …. Headers, notes and gaps are skeleton. corrupt: not a core dump, or cut off. resource_limit: too many segments.
Result<Layout> read_elf_core_layout(FileWindow& file);

/// The layout of a netCDF file in one of the classic formats: CDF-1, CDF-2 (64-bit offsets) or CDF-5 (64-bit data),
/// after "The NetCDF Classic Format Specification" (Unidata) and its CDF-5 appendix. netCDF-4 files are HDF5.
///
/// A fixed variable is one extent. A record variable has one extent a record, and `run_shape` is then the shape of one
/// record (1 for a plain series); if its records touch, as those of an only record variable do, it is one extent as
/// well. Padding, attributes and the header are skeleton. A record count left open by a streaming writer comes from the
/// file's size. corrupt: not such a file, or it ends before its data. resource_limit: more variables or records than
/// the limits allow.
Result<Layout> read_netcdf_layout(FileWindow& file);

/// The layout of an HDF5 file of the plain kind that most simulations write: the original format (superblock 0, groups
/// that are symbol tables), and datasets of integers, floats or text of fixed length that are contiguous or compact.
/// The same layout as the library's reader gives, in a fraction of its time.
///
/// unsupported: the file is of another kind, damaged, or has very many objects; the library has to look at it. Safe on
/// any file: all that is read is checked against its bounds, and the work is bounded. Format: "HDF5 File Format
/// Specification Version 3.0".
Result<Layout> read_plain_hdf5(FileBlocks& blocks, uint64_t file_bytes);

/// The layout of a file that numpy.save() has written: `/array`, then `/array2`, … if it was called several times. See
/// read_npy_array() for types and shapes. corrupt: not such a file, or it ends within the first array.
Result<Layout> read_npy_layout(FileWindow& file);

/// The layout of a zip archive of arrays. Two kinds are known.
///
/// npz, as numpy.savez() makes it: each member NAME.npy that is not compressed is the array `/NAME`. Compressed ones,
/// and members that are no arrays, are bytes. torch, as torch.save() makes it: each storage is an array, named after
/// its first tensor, as `/model/layer1.weight`; it has the tensor's shape if that is all of it, row by row. Storages
/// that the pickle does not explain are `/data/KEY`. unsupported: any other archive. corrupt: not a zip archive.
Result<Layout> read_zip_layout(FileWindow& file);

/// The layout of a file as torch.save() wrote it before it made zip archives: the same arrays. unsupported: what it
/// says of them is not understood. corrupt: it ends before them.
Result<Layout> read_torch_stream_layout(FileWindow& file);

/// The layout of a safetensors file: each tensor is an array of its name after a '/'. corrupt: not such a file, or what
/// it says of its tensors does not agree with the file. resource_limit: its header is too long.
Result<Layout> read_safetensors_layout(FileWindow& file);

/// The layout of a file of unformatted sequential records, as Fortran programs write them: before and after each record
/// lies its length, four bytes in either byte order; the parts of a record of more than 2 GiB say by a negative length
/// that another one follows, or went before.
///
/// Nothing says what a record holds. Each is bytes, `/record1` and so on; very many in a row that are of one length are
/// one array, whose slowest dimension counts them, named after the first. Lengths are skeleton.
/// unsupported: the lengths do not agree up to the file's end, or there are very many records.
Result<Layout> read_fortran_layout(FileBlocks& blocks, uint64_t file_bytes);

}  // namespace varve
