#include "cli/array_file.h"

#ifdef VARVE_WITH_HDF5
#include <fcntl.h>
#include <hdf5.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/process.h"
#endif

namespace varve::cli {

#ifdef VARVE_WITH_HDF5
namespace {
/// An object of the library, closed at the end.
class Hdf5Object {
 public:
  using Close = herr_t (*)(hid_t);
  Hdf5Object() = default;
  Hdf5Object(hid_t id, Close close_it) : id_(id), close_(close_it) {}
  Hdf5Object(Hdf5Object&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)), close_(other.close_) {}
  Hdf5Object& operator=(Hdf5Object&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  ~Hdf5Object() { close().ignore("who wanted to know has closed it"); }

  bool valid() const { return id_ >= 0; }
  hid_t id() const { return id_; }
  Status close() {
    if (!valid()) return {};
    errno = 0;
    if (close_(std::exchange(id_, H5I_INVALID_HID)) >= 0) return {};
    return Status::from_errno(errno != 0 ? errno : EIO, "finish the HDF5 file", {});
  }

 private:
  hid_t id_ = H5I_INVALID_HID;
  Close close_ = nullptr;
};

Hdf5Object copy_of(hid_t type) { return {H5Tcopy(type), H5Tclose}; }

/// IEEE 754 binary16, which the library has no name for before version 1.14.
Hdf5Object half_type(ByteOrder order) {
  Hdf5Object type = copy_of(order == ByteOrder::big ? H5T_IEEE_F32BE : H5T_IEEE_F32LE);
  H5Tset_fields(type.id(), 15, 10, 5, 0, 10);
  H5Tset_size(type.id(), 2);
  H5Tset_ebias(type.id(), 15);
  return type;
}

/// Of a size that integers of the library have; else it has none.
Hdf5Object integer_type(const ElementType& type) {
  const bool is_signed = type.kind == ElementKind::signed_integer;
  Hdf5Object made;
  switch (type.bytes) {
    case 1: made = copy_of(is_signed ? H5T_STD_I8LE : H5T_STD_U8LE); break;
    case 2: made = copy_of(is_signed ? H5T_STD_I16LE : H5T_STD_U16LE); break;
    case 4: made = copy_of(is_signed ? H5T_STD_I32LE : H5T_STD_U32LE); break;
    case 8: made = copy_of(is_signed ? H5T_STD_I64LE : H5T_STD_U64LE); break;
    default: return made;
  }
  H5Tset_order(made.id(), type.order == ByteOrder::big ? H5T_ORDER_BE : H5T_ORDER_LE);
  return made;
}

Hdf5Object opaque_type(const ElementType& type) {
  // Without a tag, as HDF5 converts to a type of the same tag alone, and who reads the file has none.
  return Hdf5Object(H5Tcreate(H5T_OPAQUE, type.bytes), H5Tclose);
}

/// As it lies in the file, so that nothing is converted.
Hdf5Object type_in_file(const ElementType& type) {
  const bool big = type.order == ByteOrder::big;
  switch (type.kind) {
    case ElementKind::signed_integer:
    case ElementKind::unsigned_integer: {
      Hdf5Object integer = integer_type(type);
      return integer.valid() ? std::move(integer) : opaque_type(type);
    }
    case ElementKind::floating:
      if (type.bytes == 8) return copy_of(big ? H5T_IEEE_F64BE : H5T_IEEE_F64LE);
      if (type.bytes == 4) return copy_of(big ? H5T_IEEE_F32BE : H5T_IEEE_F32LE);
      return type.bytes == 2 ? half_type(type.order) : opaque_type(type);
    case ElementKind::text: {
      Hdf5Object text = copy_of(H5T_C_S1);
      H5Tset_size(text.id(), type.bytes);
      return text;
    }
    case ElementKind::opaque:
      return type.bytes == 1 ? integer_type({ElementKind::unsigned_integer, {}, 1}) : opaque_type(type);
  }
  return {};
}

Hdf5Object space_of(const std::vector<uint64_t>& shape) {
  if (shape.empty()) return {H5Screate(H5S_SCALAR), H5Sclose};
  const std::vector<hsize_t> extents(shape.begin(), shape.end());
  return {H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr), H5Sclose};
}

class Hdf5File final : public ArrayFile {
 public:
  Hdf5File(std::string path, Hdf5Object file)
      : path_(std::move(path)), file_(std::move(file)), links_(H5Pcreate(H5P_LINK_CREATE), H5Pclose) {
    H5Pset_create_intermediate_group(links_.id(), 1);
    H5Pset_char_encoding(links_.id(), H5T_CSET_UTF8);
  }

  Status begin(const std::vector<std::string>& path, const ElementType& type,
               const std::vector<uint64_t>& shape) override {
    VARVE_TRY(data_.close());
    name_.clear();
    for (const std::string& part : path) name_ += "/" + part;
    type_ = type_in_file(type);
    space_ = space_of(shape);
    data_ = {H5Dcreate2(file_.id(), name_.c_str(), type_.id(), space_.id(), links_.id(), H5P_DEFAULT, H5P_DEFAULT),
             H5Dclose};
    if (data_.valid()) return {};
    return Status::invalid_argument(
        "the HDF5 file cannot hold this array: another has its name, or is where its "
        "group should be",
        name_, "write fewer variables to one file");
  }

  Status write(const CellBox& cells, ByteSpan bytes) override {
    const Hdf5Object memory = space_of(cells.cells);
    if (!cells.cells.empty()) {
      const std::vector<hsize_t> start(cells.offset.begin(), cells.offset.end());
      const std::vector<hsize_t> count(cells.cells.begin(), cells.cells.end());
      H5Sselect_hyperslab(space_.id(), H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr);
    }
    errno = 0;
    if (H5Dwrite(data_.id(), type_.id(), memory.id(), space_.id(), H5P_DEFAULT, bytes.data()) >= 0) return {};
    return Status::from_errno(errno != 0 ? errno : EIO, "write to the HDF5 file", path_);
  }

  Status finish() override {
    VARVE_TRY(data_.close());
    const Status closed = file_.close();
    if (!closed.ok()) return closed.with_subject(path_);
    const UniqueFd written(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    if (written.valid() && ::fsync(written.get()) == 0) return {};
    return Status::from_errno(errno, "make the file durable", path_);
  }

 private:
  const std::string path_;
  Hdf5Object file_, links_, type_, space_, data_;  // closed from the last to the first
  std::string name_;
};
}  // namespace

Result<std::unique_ptr<ArrayFile>> create_hdf5_file(const std::string& path) {
  // It would print what we say better.
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  errno = 0;
  Hdf5Object file(H5Fcreate(path.c_str(), H5F_ACC_EXCL, H5P_DEFAULT, H5P_DEFAULT), H5Fclose);
  if (!file.valid()) return Status::from_errno(errno != 0 ? errno : EIO, "create the HDF5 file", path);
  return std::unique_ptr<ArrayFile>(std::make_unique<Hdf5File>(path, std::move(file)));
}

#else

Result<std::unique_ptr<ArrayFile>> create_hdf5_file(const std::string& path) {
  return Status::unsupported("this build cannot write HDF5 files", path,
                             "write a .npy file, or build with VARVE_WITH_HDF5");
}

#endif

}  // namespace varve::cli
