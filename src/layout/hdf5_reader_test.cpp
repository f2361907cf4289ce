#include <gtest/gtest.h>
#include <hdf5.h>

#include "layout/test_files.h"
#include "zoo/hdf5_writing.h"
#include "zoo/zoo.h"

namespace varve {
namespace {

using zoo::Id;

struct Files : testing::Test {
  Files() { zoo::make_hdf5_files(directory.path(), {.tiny_variables = 300, .huge_file_bytes = 0}); }
  Layout layout_of(const std::string& name) {
    Result<Layout> layout = read_here(readers, directory.path() / name);
    EXPECT_TRUE(layout.ok()) << name << ": " << layout.status().to_string();
    return layout.ok() ? *layout : Layout{};
  }
  TemporaryDirectory directory;
  LayoutReaders readers = built_in_readers();
};
using Hdf5Reader = Files;

/// All chunks as they lie in the file, in the order of their places.
std::string stored_chunks(hid_t dataset, const std::vector<uint64_t>& shape) {
  Id properties(H5Dget_create_plist(dataset), H5Pclose);
  std::vector<hsize_t> chunk(H5S_MAX_RANK), offset;
  chunk.resize(static_cast<size_t>(H5Pget_chunk(properties, H5S_MAX_RANK, chunk.data())));
  offset.assign(chunk.size(), 0);
  std::string joined;
  for (;;) {
    hsize_t bytes = 0;
    uint32_t mask = 0;
    if (H5Dget_chunk_storage_size(dataset, offset.data(), &bytes) >= 0 && bytes > 0) {
      std::string one(bytes, '\0');
      if (H5Dread_chunk(dataset, H5P_DEFAULT, offset.data(), &mask, one.data()) >= 0) joined += one;
    }
    size_t i = chunk.size();
    while (i-- > 0) {
      offset[i] += chunk[i];
      if (offset[i] < shape[i]) break;
      offset[i] = 0;
    }
    if (i == SIZE_MAX) return joined;
  }
}

/// What the library reads, in the file's own type.
std::string stored_values(hid_t dataset, uint64_t bytes) {
  Id type(H5Dget_type(dataset), H5Tclose);
  std::string values(bytes, '\0');
  EXPECT_GE(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
  return values;
}

/// Compares every variable that has bytes with what the library reads; returns how many.
size_t compare_with_library(const Layout& layout, const std::filesystem::path& path) {
  std::string contents = read_text(path);
  EXPECT_TRUE(validate_layout(layout, contents.size()).ok()) << path;
  Id file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose);
  size_t compared = 0;
  for (const Variable& variable : layout.variables) {
    if (variable.extents.empty()) continue;
    Id dataset(H5Dopen2(file, variable.name.c_str(), H5P_DEFAULT), H5Dclose);
    Id properties(H5Dget_create_plist(dataset), H5Pclose);
    std::string expected;
    if (H5Pget_layout(properties) == H5D_CHUNKED) {
      expected = stored_chunks(dataset, variable.shape);
    } else if (variable.encoded) {
      continue;  // heap references: the library shows what they lead to
    } else {
      expected = stored_values(dataset, variable.stored_bytes());
    }
    EXPECT_TRUE(bytes_at(contents, variable) == expected) << path << " " << variable.name;
    ++compared;
  }
  return compared;
}

TEST_F(Hdf5Reader, FindsTheBytesThatTheLibraryReads) {
  size_t compared = 0;
  for (const auto& path : files_below(directory.path())) {
    if (path.extension() == ".h5") compared += compare_with_library(layout_of(path.filename().string()), path);
  }
  EXPECT_GT(compared, 700U);
}

TEST_F(Hdf5Reader, GivesTypesAndShapesOfEveryTypeClass) {
  struct Expected {
    const char* name;
    const char* type;
    std::vector<uint64_t> shape;
    bool encoded = false;
  };
  for (const char* file : {"types.h5", "types_latest.h5"}) {
    Layout layout = layout_of(file);
    for (const Expected& one : {Expected{"/i8", "I8", {6, 5}},
                                {"/u16be", "U16BE", {6, 5}},
                                {"/i64", "I64LE", {6, 5}},
                                {"/f16", "F16LE", {40}},
                                {"/f32be", "F32BE", {6, 5}},
                                {"/f64", "F64LE", {6, 5}},
                                {"/bits32be", "U32BE", {6, 5}},
                                {"/vax float", "O4", {6, 5}},
                                {"/long double", "O16", {6, 5}},
                                {"/i24", "O3", {11}},
                                {"/bool", "I8", {17}},
                                {"/enum", "U16BE", {9}},
                                {"/text", "T80", {4}},
                                {"/vlen text", "T1", {3}, true},
                                {"/vlen", "O16", {2}, true},
                                {"/compound", "O32", {12}},
                                {"/array", "F64LE", {4, 2, 3}},
                                {"/array of arrays", "F64LE", {5, 2, 2, 3}},
                                {"/chunked array", "F64LE", {4, 3, 3}},
                                {"/opaque", "O13", {6}},
                                {"/reference", "O8", {2}},
                                {"/scalar", "F64LE", {}},
                                {"/null", "I32LE", {0}},
                                {"/empty", "I32LE", {0, 4}}}) {
      const Variable* variable = find_variable(layout, one.name);
      ASSERT_NE(variable, nullptr) << one.name;
      EXPECT_EQ(variable->type.name(), one.type) << one.name;
      EXPECT_EQ(variable->shape, one.shape) << one.name;
      EXPECT_EQ(variable->encoded, one.encoded) << one.name;
    }
  }
}

/// Their padding is not part of their value.
TEST_F(Hdf5Reader, TakesIntegersWithPaddingForNoNumbers) {
  {
    const Id file(H5Fcreate((directory.path() / "padded.h5").c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT),
                  H5Fclose);
    const Id padded(H5Tcopy(H5T_STD_I32LE), H5Tclose), space = zoo::simple_space({3});
    zoo::h5(H5Tset_precision(padded, 24), "define a 24-bit integer");
    for (const auto& [name, type] : {std::pair<const char*, hid_t>{"padded", padded}, {"whole", H5T_STD_I32LE}}) {
      const Id dataset(H5Dcreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Dclose);
      const int32_t values[] = {-1, 0, 1};
      zoo::h5(H5Dwrite(dataset, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, values), "write a dataset");
    }
  }
  const Layout layout = layout_of("padded.h5");
  ASSERT_NE(find_variable(layout, "/padded"), nullptr);
  EXPECT_EQ(find_variable(layout, "/padded")->type.name(), "O4");
  EXPECT_EQ(find_variable(layout, "/whole")->type.name(), "I32LE");
}

TEST_F(Hdf5Reader, FindsChunksOfEveryIndexKindAlsoBehindAUserBlock) {
  struct Expected {
    const char* name;
    size_t extent_count;
    bool encoded;
    std::vector<uint64_t> run_shape;
  };
  for (const char* file :
       {"storage.h5", "storage_latest.h5", "user_block.h5", "user_block_latest.h5", "large_user_block.h5"}) {
    Layout layout = layout_of(file);
    for (const Expected& one : {Expected{"/contiguous", 1, false, {}},
                                {"/chunked", 4, false, {8, 6}},
                                {"/chunked with partial edges", 9, false, {7, 5}},
                                {"/one chunk", 1, false, {7, 5}},
                                {"/early chunks", 6, false, {4, 4}},
                                {"/growing", 6, false, {4, 3}},
                                {"/growing both ways", 6, false, {4, 3}},
                                {"/sparse", 1, false, {8, 8}},
                                {"/deflate", 12, true, {10, 10}},
                                {"/shuffle and deflate", 7, true, {16}},
                                {"/fletcher32", 6, true, {8, 8}},
                                {"/compact", 0, false, {}},
                                {"/unallocated", 0, false, {}},
                                {"/no chunks", 0, false, {10}}}) {
      const Variable* variable = find_variable(layout, one.name);
      ASSERT_NE(variable, nullptr) << one.name;
      EXPECT_EQ(variable->extents.size(), one.extent_count) << file << one.name;
      EXPECT_EQ(variable->encoded, one.encoded) << file << one.name;
      EXPECT_EQ(variable->run_shape, one.run_shape) << file << one.name;
    }
  }
}

TEST_F(Hdf5Reader, VisitsEachObjectOnceAndFollowsNoLinkOutOfTheFile) {
  for (const char* file : {"groups.h5", "groups_latest.h5"}) {
    Layout layout = layout_of(file);
    EXPECT_EQ(layout.variables.size(), 5U);
    EXPECT_NE(find_variable(layout,
                            "/Fluid/\xc3\xbc"
                            "nic\xc3\xb6"
                            "de \xe2\x9c\x93"),
              nullptr);
    EXPECT_NE(find_variable(layout, "/of a named type"), nullptr);
  }
}

TEST_F(Hdf5Reader, LeavesOutDataThatLieInOtherFiles) {
  EXPECT_TRUE(layout_of("elsewhere.h5").variables.empty());
  EXPECT_TRUE(layout_of("elsewhere_user_block.h5").variables.empty());
}

TEST_F(Hdf5Reader, ReadsFilesWithManyTinyVariablesAndLargeAttributes) {
  for (const char* file : {"tiny.h5", "tiny_latest.h5"}) EXPECT_EQ(layout_of(file).variables.size(), 300U);
  for (const char* file : {"attributes.h5", "attributes_latest.h5"}) EXPECT_EQ(layout_of(file).variables.size(), 1U);
  EXPECT_TRUE(layout_of("empty.h5").variables.empty());
}

TEST(Hdf5ReaderOnRealFiles, FindsTheBytesThatTheLibraryReads) {
  const char* data = std::getenv("VARVE_TEST_DATA");
  if (data == nullptr) GTEST_SKIP() << "VARVE_TEST_DATA is not set";
  LayoutReaders readers = built_in_readers();
  size_t compared = 0;
  for (const char* folder : {"enzo_implosion_io32", "enzo_cosmology64_io32_8ranks", "lulesh_3ranks"}) {
    if (!std::filesystem::exists(std::filesystem::path(data) / folder)) continue;
    for (const auto& path : files_below(std::filesystem::path(data) / folder)) {
      Result<Layout> layout = read_here(readers, path);
      if (layout.status().code() == StatusCode::not_found) continue;
      ASSERT_TRUE(layout.ok()) << path << layout.status().to_string();
      compared += compare_with_library(*layout, path);
    }
  }
  EXPECT_GT(compared, 3000U);
}

}  // namespace
}  // namespace varve
