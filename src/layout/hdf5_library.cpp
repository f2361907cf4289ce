#include "layout/hdf5_library.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <new>

namespace varve::hdf5 {
namespace {

DriverFile* driver_file(H5FD_t* file) { return reinterpret_cast<DriverFile*>(file); }
const DriverFile* driver_file(const H5FD_t* file) { return reinterpret_cast<const DriverFile*>(file); }

/// What the next open() of the driver gets. The library passes only a name and copies of property lists; this process
/// reads one file at a time.
struct NextFile {
  FileBlocks* blocks = nullptr;
  uint64_t file_bytes = 0;
  DriverFile* opened = nullptr;
};
NextFile next_file;

H5FD_t* driver_open(const char*, unsigned flags, hid_t, haddr_t) {
  if ((flags & H5F_ACC_RDWR) != 0 || next_file.blocks == nullptr) return nullptr;
  auto* file = new (std::nothrow) DriverFile;
  if (file == nullptr) return nullptr;
  file->file_bytes = next_file.file_bytes;
  file->blocks = next_file.blocks;
  next_file.opened = file;
  return &file->library_part;
}

herr_t driver_close(H5FD_t* file) {
  delete driver_file(file);
  return 0;
}

herr_t driver_query(const H5FD_t*, unsigned long* flags) {
  *flags = 0;
  return 0;
}

haddr_t driver_end_of_address(const H5FD_t* file, H5FD_mem_t) { return driver_file(file)->end_of_address; }
herr_t driver_set_end_of_address(H5FD_t* file, H5FD_mem_t, haddr_t address) {
  driver_file(file)->end_of_address = address;
  return 0;
}
haddr_t driver_end_of_file(const H5FD_t* file, H5FD_mem_t) { return driver_file(file)->file_bytes; }

herr_t driver_read(H5FD_t* library_file, H5FD_mem_t type, hid_t, haddr_t address, size_t bytes, void* buffer) {
  DriverFile& file = *driver_file(library_file);
  if (file.locating && type == H5FD_MEM_DRAW) {
    file.located = Extent{address, bytes};
    return 0;
  }
  return file.blocks->read(address, {static_cast<std::byte*>(buffer), bytes}) ? 0 : -1;
}

herr_t driver_write(H5FD_t*, H5FD_mem_t, hid_t, haddr_t, size_t, const void*) { return -1; }

hid_t register_driver() {
  static H5FD_class_t driver{};
#if H5_VERSION_GE(1, 14, 0)
  driver.version = H5FD_CLASS_VERSION;
  driver.value = static_cast<H5FD_class_value_t>(511);  // of the range for drivers that are not registered
#endif
  driver.name = "varve-layout";
  driver.maxaddr = INT64_MAX;
  driver.fc_degree = H5F_CLOSE_STRONG;
  driver.open = driver_open;
  driver.close = driver_close;
  driver.query = driver_query;
  driver.get_eoa = driver_end_of_address;
  driver.set_eoa = driver_set_end_of_address;
  driver.get_eof = driver_end_of_file;
  driver.read = driver_read;
  driver.write = driver_write;
  static const hid_t registered = H5FDregister(&driver);
  return registered;
}

std::optional<ByteOrder> byte_order(hid_t type) {
  switch (H5Tget_order(type)) {
    case H5T_ORDER_LE:
    case H5T_ORDER_NONE: return ByteOrder::little;
    case H5T_ORDER_BE: return ByteOrder::big;
    default: return std::nullopt;  // VAX, mixed
  }
}

/// IEEE 754 binary16, 32, 64 or 128; other floats (x87's 80 bits, bfloat16) are no numbers for our codecs.
bool is_ieee_float(hid_t type, size_t bytes) {
  size_t sign = 0, exponent = 0, exponent_bits = 0, mantissa = 0, mantissa_bits = 0;
  if (H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits) < 0) return false;
  size_t expected = bytes == 2 ? 10 : bytes == 4 ? 23 : bytes == 8 ? 52 : bytes == 16 ? 112 : 0;
  return expected != 0 && mantissa == 0 && mantissa_bits == expected && exponent == expected && sign == bytes * 8 - 1 &&
         exponent_bits == sign - expected;
}

ElementType map_number(hid_t type, ElementKind kind, size_t bytes) {
  ElementType opaque{ElementKind::opaque, ByteOrder::little, static_cast<uint32_t>(bytes)};
  std::optional<ByteOrder> order = byte_order(type);
  bool whole_size = bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8 || bytes == 16;
  if (!order || !whole_size) return opaque;
  if (kind == ElementKind::floating ? !is_ieee_float(type, bytes) : H5Tget_precision(type) != 8 * bytes) return opaque;
  return {kind, bytes == 1 ? ByteOrder::little : *order, static_cast<uint32_t>(bytes)};
}

Status map_array(hid_t type, MappedType& mapped) {
  std::array<hsize_t, H5S_MAX_RANK> dimensions{};
  int rank = H5Tget_array_ndims(type);
  if (rank < 0 || H5Tget_array_dims2(type, dimensions.data()) < 0) return library_error("tell an array type's shape");
  mapped.inner_shape.insert(mapped.inner_shape.end(), dimensions.begin(), dimensions.begin() + rank);
  if (mapped.inner_shape.size() > kDimensionsMax)
    return Status::resource_limit("an array type has too many dimensions");
  Handle element(H5Tget_super(type), H5Tclose);
  if (!element.valid()) return library_error("open an array's element type");
  return map_type(element.get(), mapped);
}

}  // namespace

Status library_error(std::string_view operation, std::string subject) {
  std::string words;
  auto first_message = [](unsigned, const H5E_error2_t* error, void* into) -> herr_t {
    *static_cast<std::string*>(into) = error->desc != nullptr ? error->desc : "";
    return 1;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, first_message, &words);
  return Status::corrupt(fmt::format("the HDF5 library cannot {} ({})", operation, words.empty() ? "no reason" : words),
                         std::move(subject));
}

Status map_type(hid_t type, MappedType& mapped) {
  size_t bytes = H5Tget_size(type);
  if (bytes == 0 || bytes > UINT32_MAX) return library_error("tell a data type's size");
  mapped.element = {ElementKind::opaque, ByteOrder::little, static_cast<uint32_t>(bytes)};
  switch (H5Tget_class(type)) {
    case H5T_INTEGER:
    case H5T_ENUM: {
      bool is_signed = H5Tget_sign(type) == H5T_SGN_2;
      mapped.element = map_number(type, is_signed ? ElementKind::signed_integer : ElementKind::unsigned_integer, bytes);
      break;
    }
    case H5T_BITFIELD: mapped.element = map_number(type, ElementKind::unsigned_integer, bytes); break;
    case H5T_FLOAT: mapped.element = map_number(type, ElementKind::floating, bytes); break;
    case H5T_STRING:
      mapped.element.kind = ElementKind::text;
      if (H5Tis_variable_str(type) > 0) {
        mapped.element.bytes = 1;
        mapped.encoded = true;
      }
      break;
    case H5T_VLEN: mapped.encoded = true; break;
    case H5T_ARRAY: return map_array(type, mapped);
    case H5T_COMPOUND:
    case H5T_REFERENCE:
    case H5T_OPAQUE:
    case H5T_TIME: break;
    case H5T_NO_CLASS:
    case H5T_NCLASSES: return library_error("tell a data type's class");
  }
  return {};
}

Result<std::vector<uint64_t>> shape_of(hid_t space, const std::string& name) {
  if (H5Sget_simple_extent_type(space) == H5S_NULL) return std::vector<uint64_t>{0};
  std::array<hsize_t, H5S_MAX_RANK> dimensions{};
  int rank = H5Sget_simple_extent_dims(space, dimensions.data(), nullptr);
  if (rank < 0) return library_error("tell a dataset's shape", name);
  return std::vector<uint64_t>(dimensions.begin(), dimensions.begin() + rank);
}

Result<OpenFile> FileOpener::open(FileBlocks& blocks, uint64_t file_bytes) {
  VARVE_TRY(start_library());
  next_file = {&blocks, file_bytes, nullptr};
  OpenFile opened;
  opened.file = Handle(H5Fopen("/varve", H5F_ACC_RDONLY, access_.get()), H5Fclose);
  opened.driver = next_file.opened;
  next_file = {};
  if (!opened.file.valid() || opened.driver == nullptr) return library_error("open the file");
  return opened;
}

Status FileOpener::start_library() {
  if (access_.valid()) return {};
  if (H5open() < 0 || H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr) < 0) return library_error("start");
  Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  hid_t driver = register_driver();
  if (driver < 0 || H5Pset_driver(access.get(), driver, nullptr) < 0) return library_error("take a file driver");
  // Where chunks are read, their dataset has a cache of its own.
  if (H5Pset_cache(access.get(), 0, 0, 0, 0.0) < 0) return library_error("do without a chunk cache");
  access_ = std::move(access);
  return {};
}

}  // namespace varve::hdf5
