// Cells of HDF5's datasets, as the library gives them: whatever their filters are, and however they are stored.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "layout/hdf5_library.h"
#include "layout/layout_reader.h"

namespace varve {
namespace {

using hdf5::Handle;
using hdf5::library_error;

/// Chunks that are kept decoded, since what is wanted next is often in the same ones.
constexpr size_t kChunkCacheBytes = 512_MiB, kChunkCacheSlots = 100'003;
constexpr double kWholeChunksFirst = 0.75;  ///< the library's default
constexpr int kTypeDepthMax = 32;

/// Whether elements hold places elsewhere, which the library would make pointers, or mean nothing outside of the file.
bool refers_elsewhere(hid_t type, int depth = 0) {
  if (depth > kTypeDepthMax) return true;
  switch (H5Tget_class(type)) {
    case H5T_INTEGER:
    case H5T_ENUM:
    case H5T_BITFIELD:
    case H5T_FLOAT:
    case H5T_OPAQUE:
    case H5T_TIME: return false;
    case H5T_STRING: return H5Tis_variable_str(type) != 0;
    case H5T_ARRAY: {
      const Handle element(H5Tget_super(type), H5Tclose);
      return !element.valid() || refers_elsewhere(element.get(), depth + 1);
    }
    case H5T_COMPOUND: {
      const int members = H5Tget_nmembers(type);
      for (int i = 0; i < members; ++i) {
        const Handle member(H5Tget_member_type(type, static_cast<unsigned>(i)), H5Tclose);
        if (!member.valid() || refers_elsewhere(member.get(), depth + 1)) return true;
      }
      return members < 0;
    }
    case H5T_VLEN:
    case H5T_REFERENCE:
    case H5T_NO_CLASS:
    case H5T_NCLASSES: break;
  }
  return true;
}

std::string filter_text(H5Z_filter_t filter, const char* name) {
  return *name != '\0' ? fmt::format("{} ('{}')", filter, name) : fmt::format("{}", filter);
}

class EncodedHdf5 final : public EncodedFile {
 public:
  explicit EncodedHdf5(ReadAt read) { blocks_.open(std::move(read)); }

  Status open(uint64_t file_bytes) {
    VARVE_ASSIGN(file_, opener_.open(blocks_, file_bytes));
    return {};
  }

  Status check(const Variable& array) override { return open_dataset(array); }

  Status read(const WantedBox& wanted, MutableByteSpan into) override {
    VARVE_TRY(open_dataset(wanted.array));
    // The library knows of the dimensions within an element only together.
    const auto outer = static_cast<ptrdiff_t>(outer_dimensions_);
    CellBox given = wanted.box;
    std::fill(given.offset.begin() + outer, given.offset.end(), 0);
    std::copy(wanted.array.shape.begin() + outer, wanted.array.shape.end(), given.cells.begin() + outer);
    if (given == wanted.box) return read_elements(given, into);
    const std::optional<uint64_t> bytes = array_bytes(given.cells, wanted.array.type.bytes);
    if (!bytes || *bytes > kInnerBytesMax) return Status::resource_limit("elements that are arrays are too large");
    Buffer elements(*bytes);
    VARVE_TRY(read_elements(given, elements));
    const uint64_t cell = wanted.array.type.bytes;
    return for_each_cell_run(wanted.box, given, wanted.box, [&](const CellRun& run) {
      std::copy_n(elements.data() + run.from * cell, run.cells * cell, into.data() + run.to * cell);
      return Status();
    });
  }

 private:
  static constexpr uint64_t kInnerBytesMax = 512_MiB;

  /// The last one stays open, with its cache.
  Status open_dataset(const Variable& array) {
    if (dataset_.valid() && name_ == array.name && shape_ == array.shape && element_ == array.type) return {};
    dataset_ = Handle(-1, H5Dclose);
    const Handle access(H5Pcreate(H5P_DATASET_ACCESS), H5Pclose);
    if (!access.valid() || H5Pset_chunk_cache(access.get(), kChunkCacheSlots, kChunkCacheBytes, kWholeChunksFirst) < 0)
      return library_error("make a chunk cache");
    Handle dataset(H5Dopen2(file_.file.get(), array.name.c_str(), access.get()), H5Dclose);
    if (!dataset.valid()) return library_error("open a dataset");
    Handle type(H5Dget_type(dataset.get()), H5Tclose);
    if (!type.valid()) return library_error("describe a dataset");
    VARVE_TRY(check_is(array, dataset.get(), type.get()));
    VARVE_TRY(check_storage(dataset.get()));
    dataset_ = std::move(dataset);
    type_ = std::move(type);
    name_ = array.name;
    shape_ = array.shape;
    element_ = array.type;
    return {};
  }

  Status check_is(const Variable& array, hid_t dataset, hid_t type) {
    if (refers_elsewhere(type)) {
      return Status::unsupported("its elements are of variable length, or refer to elsewhere in the file");
    }
    hdf5::MappedType mapped;
    VARVE_TRY(hdf5::map_type(type, mapped));
    const Handle space(H5Dget_space(dataset), H5Sclose);
    if (!space.valid()) return library_error("describe a dataset");
    VARVE_ASSIGN(std::vector<uint64_t> shape, hdf5::shape_of(space.get(), {}));
    outer_dimensions_ = shape.size();
    shape.insert(shape.end(), mapped.inner_shape.begin(), mapped.inner_shape.end());
    if (mapped.element == array.type && shape == array.shape) return {};
    return Status::corrupt("the file's dataset is another one than its layout says");
  }

  static Status check_storage(hid_t dataset) {
    const Handle properties(H5Dget_create_plist(dataset), H5Pclose);
    if (!properties.valid()) return library_error("describe a dataset");
    const H5D_layout_t layout = H5Pget_layout(properties.get());
    if (layout == H5D_VIRTUAL || (layout == H5D_CONTIGUOUS && H5Pget_external_count(properties.get()) != 0))
      return Status::unsupported("its data are in other files");
    const int filters = H5Pget_nfilters(properties.get());
    if (filters < 0) return library_error("tell a dataset's filters");
    for (int i = 0; i < filters; ++i) {
      unsigned flags = 0, config = 0;
      size_t values = 0;
      std::array<char, 64> name{};
      const H5Z_filter_t filter = H5Pget_filter2(properties.get(), static_cast<unsigned>(i), &flags, &values, nullptr,
                                                 name.size() - 1, name.data(), &config);
      if (filter < 0) return library_error("tell a dataset's filters");
      if (H5Zfilter_avail(filter) <= 0) {
        return Status::unsupported(
            fmt::format("the HDF5 library at hand has no filter {}", filter_text(filter, name.data())));
      }
    }
    return {};
  }

  Status read_elements(const CellBox& box, MutableByteSpan into) {
    if (into.empty()) return {};
    const Handle from(H5Dget_space(dataset_.get()), H5Sclose);
    if (!from.valid()) return library_error("describe a dataset");
    std::vector<hsize_t> offset(box.offset.begin(), box.offset.begin() + static_cast<ptrdiff_t>(outer_dimensions_));
    std::vector<hsize_t> count(box.cells.begin(), box.cells.begin() + static_cast<ptrdiff_t>(outer_dimensions_));
    if (outer_dimensions_ > 0 &&
        H5Sselect_hyperslab(from.get(), H5S_SELECT_SET, offset.data(), nullptr, count.data(), nullptr) < 0)
      return library_error("choose cells of a dataset");
    const Handle to(outer_dimensions_ > 0 ? H5Screate_simple(static_cast<int>(outer_dimensions_), count.data(), nullptr)
                                          : H5Screate(H5S_SCALAR),
                    H5Sclose);
    if (!to.valid()) return library_error("choose cells of a dataset");
    // In the file's own type, so that nothing is converted.
    if (H5Dread(dataset_.get(), type_.get(), to.get(), from.get(), H5P_DEFAULT, into.data()) < 0)
      return library_error("read cells of a dataset");
    return {};
  }

  FileBlocks blocks_;
  hdf5::FileOpener opener_;
  hdf5::OpenFile file_;
  Handle dataset_{-1, H5Dclose}, type_{-1, H5Tclose};  ///< of the array that was asked for last
  std::string name_;
  std::vector<uint64_t> shape_;
  ElementType element_;
  size_t outer_dimensions_ = 0;  ///< of its shape without those of its elements
};

}  // namespace

Result<std::unique_ptr<EncodedFile>> open_encoded_hdf5(ReadAt read, uint64_t file_bytes) {
  auto file = std::make_unique<EncodedHdf5>(std::move(read));
  VARVE_TRY(file->open(file_bytes));
  return Result<std::unique_ptr<EncodedFile>>(std::move(file));
}

}  // namespace varve
