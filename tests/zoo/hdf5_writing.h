#pragma once

#include <hdf5.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "zoo/pattern.h"

namespace varve::zoo {

/// Throws if the library reports a failure; else passes the value on.
template <class T>
T h5(T result, const std::string& what) {
  if (result < 0) throw std::runtime_error("zoo: HDF5 cannot " + what);
  return result;
}

/// An identifier, closed at the end of its scope.
class Id {
 public:
  Id(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {
    if (id < 0) throw std::runtime_error("zoo: HDF5 gives no identifier");
  }
  Id(Id&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Id(const Id&) = delete;
  Id& operator=(Id&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  Id& operator=(const Id&) = delete;
  ~Id() {
    if (id_ >= 0) close_(id_);
  }
  operator hid_t() const { return id_; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

using Shape = std::vector<hsize_t>;

inline Id simple_space(const Shape& shape, const Shape& largest = {}) {
  if (shape.empty()) return {H5Screate(H5S_SCALAR), H5Sclose};
  return {H5Screate_simple(static_cast<int>(shape.size()), shape.data(), largest.empty() ? nullptr : largest.data()),
          H5Sclose};
}

/// Properties of a dataset to be created; without times, so that files are the same at every run.
inline Id creation_properties(const Shape& chunk = {}) {
  Id properties(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  h5(H5Pset_obj_track_times(properties, false), "leave times out");
  if (!chunk.empty()) h5(H5Pset_chunk(properties, static_cast<int>(chunk.size()), chunk.data()), "set a chunk's shape");
  return properties;
}

/// The same of chunks that are shuffled, compressed and summed up.
inline Id filtering(const Shape& chunk) {
  Id properties = creation_properties(chunk);
  h5(H5Pset_shuffle(properties), "shuffle");
  h5(H5Pset_deflate(properties, 6), "deflate");
  h5(H5Pset_fletcher32(properties), "sum up");
  return properties;
}

/// Creates a dataset of these values, which are of `memory_type`.
template <class T>
void write_dataset(hid_t group, const std::string& name, hid_t type, hid_t memory_type, const Shape& shape,
                   const std::vector<T>& values, hid_t properties = H5P_DEFAULT) {
  const Id space = simple_space(shape);
  const Id dataset(H5Dcreate2(group, name.c_str(), type, space, H5P_DEFAULT, properties, H5P_DEFAULT), H5Dclose);
  h5(H5Dwrite(dataset, memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), "write a dataset");
}

/// Fills a dataset with a pattern of its own type.
inline void fill(hid_t dataset, hid_t type, uint32_t seed) {
  Id space(H5Dget_space(dataset), H5Sclose);
  auto count = static_cast<size_t>(H5Sget_simple_extent_npoints(space));
  std::vector<char> data = pattern(count * H5Tget_size(type), seed);
  h5(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data.data()), "write a dataset");
}

/// Creates a dataset and fills it with a pattern.
inline void add_dataset(hid_t group, const std::string& name, hid_t type, const Shape& shape, hid_t properties) {
  Id space = simple_space(shape);
  Id dataset(H5Dcreate2(group, name.c_str(), type, space, H5P_DEFAULT, properties, H5P_DEFAULT), H5Dclose);
  fill(dataset, type, static_cast<uint32_t>(name.size() * 31 + static_cast<unsigned char>(name.back())));
}

/// Datasets of every type class.
void add_typed_datasets(hid_t group);

}  // namespace varve::zoo
