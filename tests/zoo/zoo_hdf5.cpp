#include "zoo/zoo.h"

#ifdef VARVE_ZOO_WITH_HDF5
#include "zoo/hdf5_writing.h"
#endif

namespace varve::zoo {

#ifdef VARVE_ZOO_WITH_HDF5
namespace {

namespace fs = std::filesystem;

/// `latest`: with the newest structures of the format, as HDF5 1.10 has them.
Id create_file(const fs::path& path, bool latest = false, hsize_t user_block_bytes = 0) {
  Id creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
  Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  h5(H5Pset_userblock(creation, user_block_bytes), "set a user block");
  if (latest) h5(H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST), "choose a version");
  return {H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation, access), H5Fclose};
}

std::string numbered(std::string stem, uint64_t number) { return stem.append(std::to_string(number)); }

Id create_group(hid_t parent, const std::string& name) {
  Id properties(H5Pcreate(H5P_GROUP_CREATE), H5Pclose);
  h5(H5Pset_obj_track_times(properties, false), "leave times out");
  return {H5Gcreate2(parent, name.c_str(), H5P_DEFAULT, properties, H5P_DEFAULT), H5Gclose};
}

void add_filtered_datasets(hid_t file) {
  Id deflate = creation_properties({10, 10});
  h5(H5Pset_deflate(deflate, 6), "deflate");
  add_dataset(file, "deflate", H5T_IEEE_F64LE, {25, 31}, deflate);
  Id shuffled = creation_properties({16});
  h5(H5Pset_shuffle(shuffled), "shuffle");
  h5(H5Pset_deflate(shuffled, 1), "deflate");
  add_dataset(file, "shuffle and deflate", H5T_STD_I32BE, {100}, shuffled);
  Id checked = creation_properties({8, 8});
  h5(H5Pset_fletcher32(checked), "set a checksum");
  add_dataset(file, "fletcher32", H5T_IEEE_F32LE, {16, 20}, checked);
}

/// Chunks of all index kinds of the format: one chunk, fixed, extensible in one dimension or in several; with and
/// without early allocation.
void add_chunked_datasets(hid_t file) {
  Id whole = creation_properties({8, 6});
  add_dataset(file, "chunked", H5T_IEEE_F32LE, {16, 12}, whole);
  Id edges = creation_properties({7, 5});
  add_dataset(file, "chunked with partial edges", H5T_IEEE_F64BE, {16, 12}, edges);
  add_dataset(file, "one chunk", H5T_IEEE_F64LE, {7, 5}, edges);
  Id early = creation_properties({4, 4});
  h5(H5Pset_alloc_time(early, H5D_ALLOC_TIME_EARLY), "allocate early");
  add_dataset(file, "early chunks", H5T_STD_I16LE, {12, 8}, early);
  add_dataset(file, "three dimensions", H5T_STD_U8LE, {9, 8, 7}, creation_properties({4, 3, 2}));

  struct Growing {
    const char* name;
    Shape largest;
  };
  for (const Growing& one :
       {Growing{"growing", {H5S_UNLIMITED, 6}}, {"growing both ways", {H5S_UNLIMITED, H5S_UNLIMITED}}}) {
    Id properties = creation_properties({4, 3});
    Id space = simple_space({10, 6}, one.largest);
    Id dataset(H5Dcreate2(file, one.name, H5T_STD_I32LE, space, H5P_DEFAULT, properties, H5P_DEFAULT), H5Dclose);
    fill(dataset, H5T_STD_I32LE, 21);
  }
}

/// Writes one chunk of many, so that the chunk index is nearly empty.
void add_sparse_dataset(hid_t file, const std::string& name, const Shape& shape, const Shape& at) {
  Id properties = creation_properties({8, 8});
  Id space = simple_space(shape);
  Id dataset(H5Dcreate2(file, name.c_str(), H5T_STD_I32LE, space, H5P_DEFAULT, properties, H5P_DEFAULT), H5Dclose);
  Shape count{8, 8};
  Id memory = simple_space(count);
  h5(H5Sselect_hyperslab(space, H5S_SELECT_SET, at.data(), nullptr, count.data(), nullptr), "select");
  std::vector<char> data = pattern(256, 5);
  h5(H5Dwrite(dataset, H5T_STD_I32LE, memory, space, H5P_DEFAULT, data.data()), "write a chunk");
}

void add_stored_datasets(hid_t file) {
  add_dataset(file, "contiguous", H5T_IEEE_F64LE, {20, 30}, creation_properties());
  Id compact = creation_properties();
  h5(H5Pset_layout(compact, H5D_COMPACT), "store compactly");
  add_dataset(file, "compact", H5T_STD_I32LE, {50}, compact);
  add_chunked_datasets(file);
  add_filtered_datasets(file);
  add_sparse_dataset(file, "sparse", {100, 100}, {48, 16});
  add_sparse_dataset(file, "hugely sparse", {1 << 30, 1 << 30}, {1 << 20, 1 << 29});
  Id space = simple_space({1000});
  Id late = creation_properties();
  Id unallocated(H5Dcreate2(file, "unallocated", H5T_IEEE_F64LE, space, H5P_DEFAULT, late, H5P_DEFAULT), H5Dclose);
  Id chunked = creation_properties({10});
  Id no_chunks(H5Dcreate2(file, "no chunks", H5T_IEEE_F64LE, space, H5P_DEFAULT, chunked, H5P_DEFAULT), H5Dclose);
}

void add_data_elsewhere(hid_t file) {
  Id external = creation_properties();
  h5(H5Pset_external(external, "external.bin", 0, 400), "store outside");
  add_dataset(file, "external", H5T_STD_I32LE, {100}, external);
  Id source = simple_space({20, 30});
  Id space = simple_space({20, 30});
  Id properties = creation_properties();
  h5(H5Pset_virtual(properties, space, ".", "/contiguous", source), "map a virtual dataset");
  Id dataset(H5Dcreate2(file, "virtual", H5T_IEEE_F64LE, space, H5P_DEFAULT, properties, H5P_DEFAULT), H5Dclose);
}

void add_groups_and_links(hid_t file) {
  Id properties = creation_properties();
  Id fluid = create_group(file, "Fluid");
  Id inner = create_group(fluid, "inner");
  add_dataset(inner, "Temperature", H5T_IEEE_F32BE, {5, 5}, properties);
  add_dataset(fluid,
              "\xc3\xbc"
              "nic\xc3\xb6"
              "de \xe2\x9c\x93",
              H5T_STD_I32LE, {10}, properties);
  add_dataset(fluid, "a name with spaces\nand a line end", H5T_STD_I32LE, {10}, properties);
  h5(H5Lcreate_hard(inner, "Temperature", file, "the same temperature", H5P_DEFAULT, H5P_DEFAULT), "link");
  h5(H5Lcreate_hard(file, "/", inner, "back to the root", H5P_DEFAULT, H5P_DEFAULT), "link");
  h5(H5Lcreate_hard(file, "Fluid", inner, "a circle", H5P_DEFAULT, H5P_DEFAULT), "link");
  h5(H5Lcreate_soft("/Fluid/inner", file, "soft", H5P_DEFAULT, H5P_DEFAULT), "link");
  h5(H5Lcreate_soft("/nowhere", file, "dangling", H5P_DEFAULT, H5P_DEFAULT), "link");
  h5(H5Lcreate_external("types.h5", "/f32", file, "elsewhere", H5P_DEFAULT, H5P_DEFAULT), "link");
  Id named(H5Tcopy(H5T_STD_I32BE), H5Tclose);
  h5(H5Tcommit2(file, "named type", named, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), "commit a type");
  add_dataset(file, "of a named type", named, {3}, properties);
  Id deep = create_group(file, "0");
  for (int depth = 1; depth < 60; ++depth) deep = create_group(deep, std::to_string(depth));
  add_dataset(deep, "deep", H5T_STD_I64LE, {2}, properties);
}

void add_attributes(hid_t file, bool dense) {
  add_dataset(file, "described", H5T_IEEE_F64LE, {10}, creation_properties());
  Id dataset(H5Dopen2(file, "described", H5P_DEFAULT), H5Dclose);
  for (int i = 0; i < (dense ? 300 : 20); ++i) {
    hsize_t large = dense ? 20'000 : 7'000;
    Shape shape{i == 0 ? large : hsize_t{10}};
    Id space = simple_space(shape);
    std::string name = numbered("attribute ", static_cast<uint64_t>(i));
    Id attribute(H5Acreate2(dataset, name.c_str(), H5T_IEEE_F64LE, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
    std::vector<char> data = pattern(shape[0] * 8, static_cast<uint32_t>(i));
    h5(H5Awrite(attribute, H5T_IEEE_F64LE, data.data()), "write an attribute");
  }
}

void add_tiny_datasets(hid_t file, uint64_t count) {
  Id properties = creation_properties();
  Id group = create_group(file, "particles");
  for (uint64_t i = 0; i < count; ++i) add_dataset(group, numbered("p", i), H5T_STD_I32LE, {4}, properties);
}

/// Nothing but chunks, in an index of several levels, too.
void add_all_chunked(hid_t file) {
  add_filtered_datasets(file);
  add_chunked_datasets(file);
  add_dataset(file, "many chunks", H5T_STD_U8LE, {2000, 3}, creation_properties({1, 2}));
  add_sparse_dataset(file, "a chunk of many", {640, 80}, {320, 40});
  const Id space = simple_space({10});
  const Id none(H5Dcreate2(file, "no chunks", H5T_STD_I32LE, space, H5P_DEFAULT, creation_properties({5}), H5P_DEFAULT),
                H5Dclose);
}

}  // namespace

void make_hdf5_files(const fs::path& directory, const Options& options) {
  fs::create_directories(directory);
  h5(H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr), "be silent");
  for (bool latest : {false, true}) {
    std::string ending = latest ? "_latest.h5" : ".h5";
    add_typed_datasets(create_file(directory / ("types" + ending), latest));
    add_all_chunked(create_file(directory / ("chunks" + ending), latest));
    add_stored_datasets(create_file(directory / ("storage" + ending), latest));
    add_groups_and_links(create_file(directory / ("groups" + ending), latest));
    add_attributes(create_file(directory / ("attributes" + ending), latest), latest);
    add_tiny_datasets(create_file(directory / ("tiny" + ending), latest), options.tiny_variables);
    add_stored_datasets(create_file(directory / ("user_block" + ending), latest, 1024));
  }
  add_stored_datasets(create_file(directory / "large_user_block.h5", false, 65'536));
  Id empty = create_file(directory / "empty.h5");
  // The external file is named relative to the working directory, and virtual datasets need the newest version.
  fs::path working_directory = fs::current_path();
  fs::current_path(directory);
  add_data_elsewhere(create_file("elsewhere.h5", true));
  add_data_elsewhere(create_file("elsewhere_user_block.h5", true, 512));
  fs::current_path(working_directory);
}
#else
void make_hdf5_files(const std::filesystem::path& directory, const Options&) {
  std::filesystem::create_directories(directory);
}
#endif

}  // namespace varve::zoo
