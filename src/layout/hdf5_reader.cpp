#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_set>

#include "layout/array_type.h"
#include "layout/file_window.h"
#include "layout/hdf5_library.h"
#include "layout/layout.h"
#include "layout/layout_reader.h"

namespace varve {
namespace {

using hdf5::DriverFile;
using hdf5::Handle;
using hdf5::library_error;
using hdf5::map_type;
using hdf5::MappedType;
using hdf5::shape_of;

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
  Layout layout_{.format = std::string(kHdf5Format), .variables = {}};
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
    blocks_.open(read_file_at(fd));
    VARVE_ASSIGN(const hdf5::OpenFile file, opener_.open(blocks_, file_bytes));
    return FileVisitor(file.file.get(), *file.driver).visit();
  }

  Result<std::unique_ptr<EncodedFile>> open_encoded(ReadAt read, uint64_t file_bytes) const override {
    return open_encoded_hdf5(std::move(read), file_bytes);
  }

 private:
  static constexpr std::string_view kSignature = "\x89HDF\r\n\x1a\n";
  static constexpr uint64_t kUserBlockBytesMax = 1_MiB;

  static bool has_signature(ByteSpan bytes, size_t at) {
    return bytes.size() >= at + kSignature.size() && as_text(bytes.subspan(at, kSignature.size())) == kSignature;
  }

  mutable hdf5::FileOpener opener_;
  mutable FileBlocks blocks_;
};

}  // namespace

std::unique_ptr<LayoutReader> make_hdf5_reader() { return std::make_unique<Hdf5Reader>(); }

}  // namespace varve
