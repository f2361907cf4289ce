#pragma once

#include <cstdint>
#include <filesystem>

namespace varve::zoo {

/// How much of a zoo to build.
struct Options {
  uint64_t tiny_variables = 2'000;               ///< in one HDF5 file; 100,000 is what a nightly test takes
  uint64_t huge_file_bytes = uint64_t{1} << 40;  ///< apparent size of a sparse file; 0: none
};

// Each function fills `directory`, which it creates, with files that are the same at every call (but for what libraries
// put in of their own, such as object times, which are switched off). They throw std::runtime_error if that fails.

/// HDF5 files: every storage kind, every type class, both format versions, user blocks, all kinds of links. None
/// without HDF5.
void make_hdf5_files(const std::filesystem::path& directory, const Options& options = {});

/// netCDF classic, 64-bit offset and CDF-5 files with fixed and record variables, and a netCDF-4 one, written by the
/// netCDF library. None without it.
void make_netcdf_files(const std::filesystem::path& directory);

/// Hand-written ELF core dumps: 32- and 64-bit, both byte orders.
void make_elf_cores(const std::filesystem::path& directory);

/// Hand-written files of libraries of arrays: numpy's npy, with every kind of type; zip archives of numpy, of torch and
/// of something else; torch's older files; safetensors.
void make_npy_files(const std::filesystem::path& directory);
void make_zip_files(const std::filesystem::path& directory);
void make_torch_stream_files(const std::filesystem::path& directory);
void make_safetensors_files(const std::filesystem::path& directory);

/// Hand-written files of Fortran's sequential records, of both byte orders.
void make_fortran_files(const std::filesystem::path& directory);

/// A file with a description beside it.
void make_raw_files(const std::filesystem::path& directory);

/// What trees of real users hold: an empty file, a huge sparse one, names with spaces, newlines, Unicode or 255 bytes,
/// symbolic links (relative, absolute, dangling), nested empty folders, modes, set-group-id, old times with
/// nanoseconds.
void make_odd_tree(const std::filesystem::path& directory, const Options& options = {});

/// All of the above, in folders hdf5, netcdf, elf, npy, zip, torch_stream, safetensors, fortran, raw and odd.
void make_zoo(const std::filesystem::path& directory, const Options& options = {});

}  // namespace varve::zoo
