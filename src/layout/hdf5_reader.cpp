// The only file of the library that includes <hdf5.h>: in the API of 1.10, which later versions keep.
#define H5_USE_110_API
#include <fmt/format.h>
#include <hdf5.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <deque>
#include <optional>
#include <unordered_set>

#include "layout/file_window.h"
#include "layout/layout.h"
#include "layout/layout_reader.h"

namespace varve {
namespace {

// ---------------------------------------------------------------------------------------------------------------------
// A read-only file driver of the HDF5 library. It takes an open descriptor (no path, no file lock) through a cache of
// blocks, and can tell where a chunk lies without reading it.

/// The library owns the H5FD_t and hands it back to every call; the rest lives as long.
struct DriverFile {
  H5FD_t library_part{};  // first, so that a pointer to it is a pointer to all
  haddr_t file_bytes = 0;
  haddr_t end_of_address = 0;
  FileBlocks* blocks = nullptr;
  bool locating = false;          ///< note where raw data would be read, and do not read them
  std::optional<Extent> located;  ///< the last place so noted
};

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
  return H5FDregister(&driver);
}

// ---------------------------------------------------------------------------------------------------------------------

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
Status library_error(std::string_view operation, std::string subject = {}) {
  std::string words;
  auto first_message = [](unsigned, const H5E_error2_t* error, void* into) -> herr_t {
    *static_cast<std::string*>(into) = error->desc != nullptr ? error->desc : "";
    return 1;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, first_message, &words);
  return Status::corrupt(fmt::format("the HDF5 library cannot {} ({})", operation, words.empty() ? "no reason" : words),
                         std::move(subject));
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

struct MappedType {
  ElementType element;
  std::vector<uint64_t> inner_shape;  ///< of an array type
  bool encoded = false;               ///< references into a heap: the elements' bytes are not the data
};

ElementType map_number(hid_t type, ElementKind kind, size_t bytes) {
  ElementType opaque{ElementKind::opaque, ByteOrder::little, static_cast<uint32_t>(bytes)};
  std::optional<ByteOrder> order = byte_order(type);
  bool whole_size = bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8 || bytes == 16;
  if (!order || !whole_size) return opaque;
  if (kind == ElementKind::floating ? !is_ieee_float(type, bytes) : H5Tget_precision(type) != 8 * bytes) return opaque;
  return {kind, bytes == 1 ? ByteOrder::little : *order, static_cast<uint32_t>(bytes)};
}

Status map_array(hid_t type, MappedType& mapped);

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

/// A hard link of a group. `address` identifies the object, however many links there are to it.
struct NamedLink {
  std::string name;
  haddr_t address;
};

herr_t collect_hard_link(hid_t, const char* name, const H5L_info_t* info, void* into) {
  // Soft and external links lead to objects that have a hard link of their own, or out of the file.
  if (info->type != H5L_TYPE_HARD) return 0;
  auto& links = *static_cast<std::vector<NamedLink>*>(into);
  if (links.size() >= kVariablesPerFileMax) return -1;
  links.push_back({name, info->u.address});
  return 0;
}

/// Visits every object of one open file once.
class FileVisitor {
 public:
  FileVisitor(hid_t file, DriverFile& driver) : file_(file), driver_(driver) {}

  Result<Layout> visit() {
    Handle root(H5Gopen2(file_, "/", H5P_DEFAULT), H5Gclose);
    H5O_info_t info;
    if (!root.valid() || H5Oget_info2(root.get(), &info, H5O_INFO_BASIC) < 0)
      return library_error("open the root group");
    visited_.insert(info.addr);
    VARVE_TRY(visit_group(root.get(), "/"));
    // Groups wait in a list instead of on the stack, so that nesting cannot exhaust it.
    for (; !groups_.empty(); groups_.pop_front()) {
      const NamedLink group = std::move(groups_.front());
      Handle opened(H5Oopen_by_addr(file_, group.address), H5Oclose);
      if (!opened.valid()) return library_error("open a group", group.name);
      VARVE_TRY(visit_group(opened.get(), group.name + "/"));
    }
    return std::move(layout_);
  }

 private:
  Status visit_group(hid_t group, const std::string& path) {
    links_.clear();
    hsize_t position = 0;
    if (H5Literate(group, H5_INDEX_NAME, H5_ITER_NATIVE, &position, collect_hard_link, &links_) < 0) {
      return library_error("list a group", path);
    }
    for (const NamedLink& link : links_) {
      if (!visited_.insert(link.address).second) continue;
      if (visited_.size() > kVariablesPerFileMax) return Status::resource_limit("the file has too many objects");
      std::string name = path + link.name;
      if (name.size() > kVariableNameBytesMax) return Status::resource_limit("groups are nested too deeply");
      Handle object(H5Oopen_by_addr(file_, link.address), H5Oclose);
      if (!object.valid()) return library_error("open an object", name);
      H5I_type_t kind = H5Iget_type(object.get());
      if (kind == H5I_GROUP) {
        groups_.push_back({std::move(name), link.address});
      } else if (kind == H5I_DATASET) {
        VARVE_TRY(add_dataset(object.get(), std::move(name)));
      }
    }
    return {};
  }

  Status add_dataset(hid_t dataset, std::string name) {
    Variable variable;
    variable.name = std::move(name);
    Handle type(H5Dget_type(dataset), H5Tclose);
    Handle space(H5Dget_space(dataset), H5Sclose);
    if (!type.valid() || !space.valid()) return library_error("describe a dataset", variable.name);
    MappedType mapped;
    VARVE_TRY(map_type(type.get(), mapped));
    variable.type = mapped.element;
    variable.encoded = mapped.encoded;
    VARVE_ASSIGN(variable.shape, shape_of(space.get(), variable.name));
    variable.shape.insert(variable.shape.end(), mapped.inner_shape.begin(), mapped.inner_shape.end());

    // The library adds the size of the user block to an offset also where there is none.
    haddr_t offset = H5Dget_offset(dataset);
    if (offset != HADDR_UNDEF && offset != HADDR_UNDEF + driver_.library_part.base_addr) {
      uint64_t bytes = H5Dget_storage_size(dataset);
      // A heap reference has another size in the file than the one that the library tells.
      if (array_bytes(variable.shape, variable.type.bytes) != bytes) variable.encoded = true;
      if (bytes > 0) variable.extents = {{offset, bytes}};
      layout_.variables.push_back(std::move(variable));
      return {};
    }
    return add_special_dataset(dataset, space.get(), mapped, std::move(variable));
  }

  /// Whatever is not contiguous and allocated. Compact data lie inside the object's header: skeleton.
  Status add_special_dataset(hid_t dataset, hid_t space, const MappedType& mapped, Variable variable) {
    Handle properties(H5Dget_create_plist(dataset), H5Pclose);
    if (!properties.valid()) return library_error("describe a dataset", variable.name);
    switch (H5Pget_layout(properties.get())) {
      case H5D_COMPACT: break;
      case H5D_CONTIGUOUS:
        if (H5Pget_external_count(properties.get()) > 0) return {};
        break;
      case H5D_CHUNKED: VARVE_TRY(find_chunks(dataset, space, properties.get(), mapped, variable)); break;
      case H5D_VIRTUAL: return {};
      case H5D_LAYOUT_ERROR:
      case H5D_NLAYOUTS: return library_error("tell how a dataset is stored", variable.name);
    }
    layout_.variables.push_back(std::move(variable));
    return {};
  }

  static Result<std::vector<uint64_t>> shape_of(hid_t space, const std::string& name) {
    if (H5Sget_simple_extent_type(space) == H5S_NULL) return std::vector<uint64_t>{0};
    std::array<hsize_t, H5S_MAX_RANK> dimensions{};
    int rank = H5Sget_simple_extent_dims(space, dimensions.data(), nullptr);
    if (rank < 0) return library_error("tell a dataset's shape", name);
    return std::vector<uint64_t>(dimensions.begin(), dimensions.begin() + rank);
  }

  /// Where it would take too long to find the chunks, none are found: their bytes are skeleton.
  Status find_chunks(hid_t dataset, hid_t space, hid_t properties, const MappedType& mapped, Variable& variable) {
    size_t rank = variable.shape.size() - mapped.inner_shape.size();
    std::vector<hsize_t> chunk(rank);
    if (rank == 0 || H5Pget_chunk(properties, static_cast<int>(rank), chunk.data()) != static_cast<int>(rank)) {
      return library_error("tell a dataset's chunk shape", variable.name);
    }
    if (H5Pget_nfilters(properties) > 0) variable.encoded = true;
    std::vector<hsize_t> grid(rank);
    for (size_t i = 0; i < rank; ++i) grid[i] = variable.shape[i] / chunk[i] + (variable.shape[i] % chunk[i] != 0);
    std::optional<uint64_t> places = array_bytes(grid, 1);
    // Some chunk indexes are arrays with a slot for every place, and to count is to walk through them.
    if (!places || *places > kPlacesMax) return {};
    hsize_t chunk_count = 0;
    if (H5Dget_num_chunks(dataset, space, &chunk_count) < 0) return library_error("count chunks", variable.name);
    extent_count_ += chunk_count;
    if (extent_count_ > kExtentsPerFileMax) return Status::resource_limit("the file has too many chunks");
    bool mostly_allocated = *places <= kPlacesPerChunkMax * chunk_count + kPlacesSearched;
    if (mostly_allocated) {
      VARVE_TRY(locate_by_coordinates(dataset, chunk, grid, chunk_count, variable));
    } else if (chunk_count <= kListedChunksMax) {
      VARVE_TRY(locate_by_listing(dataset, space, chunk_count, variable));
    } else {
      return {};
    }
    std::vector<uint64_t> run_shape(chunk.begin(), chunk.end());
    run_shape.insert(run_shape.end(), mapped.inner_shape.begin(), mapped.inner_shape.end());
    uint64_t run_bytes = array_bytes(run_shape, variable.type.bytes).value_or(0);
    for (const Extent& extent : variable.extents) variable.encoded |= extent.bytes != run_bytes;
    variable.run_shape = std::move(run_shape);
    return {};
  }

  /// The library lists chunks only one by one from the first (H5Dget_chunk_info), n^2 steps for n chunks. Reading one
  /// is a search in the chunk index: start to read each, and let the driver note where.
  Status locate_by_coordinates(hid_t dataset, const std::vector<hsize_t>& chunk, const std::vector<hsize_t>& grid,
                               uint64_t chunk_count, Variable& variable) {
    std::vector<hsize_t> place(grid.size(), 0), offset(grid.size(), 0);
    variable.extents.reserve(chunk_count);
    for (bool more = chunk_count > 0; more;) {
      for (size_t i = 0; i < place.size(); ++i) offset[i] = place[i] * chunk[i];
      if (std::optional<Extent> extent = locate_chunk(dataset, offset.data())) {
        if (variable.extents.size() == chunk_count)
          return Status::corrupt("a dataset has too many chunks", variable.name);
        if (extent->bytes > 0) variable.extents.push_back(*extent);
      }
      more = variable.extents.size() < chunk_count && advance(place, grid);
    }
    if (variable.extents.size() < chunk_count) return library_error("find all chunks", variable.name);
    return {};
  }

  static bool advance(std::vector<hsize_t>& place, const std::vector<hsize_t>& grid) {
    for (size_t i = place.size(); i-- > 0;) {
      if (++place[i] < grid[i]) return true;
      place[i] = 0;
    }
    return false;
  }

  std::optional<Extent> locate_chunk(hid_t dataset, const hsize_t* offset) {
    driver_.located.reset();
    driver_.locating = true;
    uint32_t filter_mask = 0;
    std::byte untouched{};  // the driver does not fill it
    herr_t found = H5Dread_chunk(dataset, H5P_DEFAULT, offset, &filter_mask, &untouched);
    driver_.locating = false;
    return found < 0 ? std::nullopt : driver_.located;
  }

  Status locate_by_listing(hid_t dataset, hid_t space, uint64_t chunk_count, Variable& variable) {
    std::array<hsize_t, H5S_MAX_RANK + 1> offset{};
    for (hsize_t i = 0; i < chunk_count; ++i) {
      unsigned filter_mask = 0;
      haddr_t address = HADDR_UNDEF;
      hsize_t bytes = 0;
      if (H5Dget_chunk_info(dataset, space, i, offset.data(), &filter_mask, &address, &bytes) < 0) {
        return library_error("list chunks", variable.name);
      }
      // Ask once more through the driver: in a file with a user block the versions of the library disagree on
      // addresses.
      if (std::optional<Extent> extent = locate_chunk(dataset, offset.data())) {
        if (extent->bytes > 0) variable.extents.push_back(*extent);
      }
    }
    return {};
  }

  static constexpr uint64_t kPlacesMax = 64'000'000, kPlacesPerChunkMax = 8, kPlacesSearched = 4096;
  static constexpr uint64_t kListedChunksMax = 16'384;

  hid_t file_;
  DriverFile& driver_;
  Layout layout_{.format = "hdf5", .variables = {}};
  std::unordered_set<haddr_t> visited_;
  std::vector<NamedLink> links_;  ///< of the group that is being visited
  std::deque<NamedLink> groups_;  ///< to be visited, with full names
  uint64_t extent_count_ = 0;
};

class Hdf5Reader final : public LayoutReader {
 public:
  std::string_view name() const override { return "HDF5"; }

  /// The signature is at 0, 512, 1024, 2048 and so on, after a user block; the search ends at kUserBlockBytesMax.
  bool recognises(const ReadAt& read, ByteSpan first_bytes, uint64_t file_bytes) const override {
    if (has_signature(first_bytes, 0)) return true;
    for (uint64_t at = 512; at <= kUserBlockBytesMax && at + kSignature.size() <= file_bytes; at *= 2) {
      if (at + kSignature.size() <= first_bytes.size()) {
        if (has_signature(first_bytes, at)) return true;
        continue;
      }
      std::array<std::byte, 8> found{};
      const Result<uint64_t> got = read(at, found);
      if (!got.ok() || *got < found.size()) break;
      if (has_signature(found, 0)) return true;
    }
    return false;
  }

  Result<Layout> read_safely(const ReadAt& read, uint64_t file_bytes) const override {
    thread_local FileBlocks blocks;
    blocks.open(read);
    Result<Layout> layout = read_plain_hdf5(blocks, file_bytes);
    blocks.open({});  // it outlives what is read
    return layout;
  }

  Result<Layout> read(int fd, uint64_t file_bytes) const override {
    VARVE_TRY(start_library());
    blocks_.open(read_file_at(fd));
    next_file = {&blocks_, file_bytes, nullptr};
    Handle file(H5Fopen("/varve", H5F_ACC_RDONLY, access_.get()), H5Fclose);
    next_file.blocks = nullptr;
    if (!file.valid() || next_file.opened == nullptr) return library_error("open the file");
    return FileVisitor(file.get(), *next_file.opened).visit();
  }

 private:
  static constexpr std::string_view kSignature = "\x89HDF\r\n\x1a\n";
  static constexpr uint64_t kUserBlockBytesMax = 1_MiB;

  static bool has_signature(ByteSpan bytes, size_t at) {
    return bytes.size() >= at + kSignature.size() && as_text(bytes.subspan(at, kSignature.size())) == kSignature;
  }

  Status start_library() const {
    if (access_.valid()) return {};
    if (H5open() < 0 || H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr) < 0) return library_error("start");
    Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
    hid_t driver = register_driver();
    if (driver < 0 || H5Pset_driver(access.get(), driver, nullptr) < 0) return library_error("take a file driver");
    // Nothing is read from chunks, so none need be kept.
    if (H5Pset_cache(access.get(), 0, 0, 0, 0.0) < 0) return library_error("do without a chunk cache");
    access_ = std::move(access);
    return {};
  }

  mutable Handle access_{-1, H5Pclose};
  mutable FileBlocks blocks_;
};

}  // namespace

std::unique_ptr<LayoutReader> make_hdf5_reader() { return std::make_unique<Hdf5Reader>(); }

}  // namespace varve
