#include "layout/layout_reader.h"

#include <gtest/gtest.h>
#include <netcdf.h>

#include <algorithm>

#include "layout/test_files.h"
#include "zoo/zoo.h"

namespace varve {
namespace {

struct Files : testing::Test {
  Files() { zoo::make_netcdf_files(directory.path()); }
  TemporaryDirectory directory;
};
using NetcdfReader = Files;

/// All values of a variable as the netCDF library reads them, turned into the file's byte order.
std::string values_in_file_order(int file, int id, size_t element_bytes) {
  int dimension_count = 0;
  int dimensions[NC_MAX_VAR_DIMS];
  EXPECT_EQ(nc_inq_var(file, id, nullptr, nullptr, &dimension_count, dimensions, nullptr), NC_NOERR);
  size_t count = 1;
  for (int i = 0; i < dimension_count; ++i) {
    size_t length = 0;
    EXPECT_EQ(nc_inq_dimlen(file, dimensions[i], &length), NC_NOERR);
    count *= length;
  }
  std::string values(count * element_bytes, '\0');
  EXPECT_EQ(nc_get_var(file, id, values.data()), NC_NOERR);
  for (size_t i = 0; i < count; ++i) {
    auto element = values.begin() + static_cast<std::ptrdiff_t>(i * element_bytes);
    std::reverse(element, element + static_cast<std::ptrdiff_t>(element_bytes));
  }
  return values;
}

TEST_F(NetcdfReader, FindsTheBytesThatTheLibraryReads) {
  size_t compared = 0;
  for (const auto& path : files_below(directory.path())) {
    if (path.filename() == "netcdf4.nc") continue;
    Result<Layout> layout = read_here(built_in_readers(), path);
    ASSERT_TRUE(layout.ok()) << path << layout.status().to_string();
    std::string contents = read_text(path);
    EXPECT_TRUE(validate_layout(*layout, contents.size()).ok());
    int file = -1;
    ASSERT_EQ(nc_open(path.c_str(), NC_NOWRITE, &file), NC_NOERR);
    int variable_count = 0;
    ASSERT_EQ(nc_inq_nvars(file, &variable_count), NC_NOERR);
    EXPECT_EQ(layout->variables.size(), static_cast<size_t>(variable_count));
    for (int id = 0; id < variable_count; ++id) {
      char name[NC_MAX_NAME + 1];
      ASSERT_EQ(nc_inq_varname(file, id, name), NC_NOERR);
      const Variable* variable = find_variable(*layout, std::string("/") + name);
      ASSERT_NE(variable, nullptr) << name;
      EXPECT_EQ(bytes_at(contents, *variable), values_in_file_order(file, id, variable->type.bytes)) << path << name;
      ++compared;
    }
    nc_close(file);
  }
  EXPECT_GT(compared, 35U);
}

TEST_F(NetcdfReader, GivesTypesAndShapes) {
  Result<Layout> layout = read_here(built_in_readers(), directory.path() / "data64.nc");
  ASSERT_TRUE(layout.ok());
  struct Expected {
    const char* name;
    const char* type;
    std::vector<uint64_t> shape, run_shape;
    size_t extent_count;
  };
  for (const Expected& one :
       {Expected{"/scalar", "I32BE", {}, {}, 1}, Expected{"/letters", "T1", {7, 3}, {}, 1},
        Expected{"/unsigned long ints", "U64BE", {7}, {}, 1}, Expected{"/record floats", "F32BE", {5, 7, 3}, {7, 3}, 5},
        Expected{"/time", "F64BE", {5}, {1}, 5}, Expected{"/bytes", "I8", {3}, {}, 1}}) {
    const Variable* variable = find_variable(*layout, one.name);
    ASSERT_NE(variable, nullptr) << one.name;
    EXPECT_EQ(variable->type.name(), one.type);
    EXPECT_EQ(variable->shape, one.shape) << one.name;
    EXPECT_EQ(variable->run_shape, one.run_shape) << one.name;
    EXPECT_EQ(variable->extents.size(), one.extent_count) << one.name;
  }
}

TEST_F(NetcdfReader, JoinsTheRecordsOfAnOnlyRecordVariable) {
  for (const char* name : {"only_record_bytes.nc", "only_record_doubles.nc"}) {
    Result<Layout> layout = read_here(built_in_readers(), directory.path() / name);
    ASSERT_TRUE(layout.ok());
    EXPECT_EQ(find_variable(*layout, "/series")->extents.size(), 1U);
  }
}

TEST_F(NetcdfReader, ReadsAFileThatHasNoRecordsYet) {
  for (const int format : {0, NC_64BIT_OFFSET, NC_64BIT_DATA}) {
    const std::string path = directory.path() / "empty.nc";
    int file = -1, time = -1, x = -1, grid = -1, field = -1;
    ASSERT_EQ(nc_create(path.c_str(), NC_CLOBBER | format, &file), NC_NOERR);
    ASSERT_EQ(nc_def_dim(file, "time", NC_UNLIMITED, &time), NC_NOERR);
    ASSERT_EQ(nc_def_dim(file, "x", 1000, &x), NC_NOERR);
    const int dimensions[] = {time, x};
    ASSERT_EQ(nc_def_var(file, "grid", NC_BYTE, 1, &x, &grid), NC_NOERR);
    ASSERT_EQ(nc_def_var(file, "field", NC_DOUBLE, 2, dimensions, &field), NC_NOERR);
    ASSERT_EQ(nc_close(file), NC_NOERR);
    const std::string contents = read_text(path);
    FileWindow window(as_bytes(contents));
    const Result<Layout> layout = read_netcdf_layout(window);
    ASSERT_TRUE(layout.ok()) << layout.status().to_string();
    EXPECT_TRUE(validate_layout(*layout, contents.size()).ok());
    EXPECT_EQ(find_variable(*layout, "/grid")->shape, std::vector<uint64_t>{1000});
    EXPECT_EQ(find_variable(*layout, "/field")->shape, (std::vector<uint64_t>{0, 1000}));
  }
}

TEST_F(NetcdfReader, CountsTheRecordsOfAStreamedFileByItsSize) {
  for (const char* name : {"classic.nc", "only_record_bytes.nc", "data64.nc"}) {
    std::string contents = read_text(directory.path() / name);
    FileWindow closed(as_bytes(contents));
    Result<Layout> expected = read_netcdf_layout(closed);
    std::fill_n(contents.begin() + 4, contents[3] == 5 ? 8 : 4, '\xff');
    FileWindow streamed(as_bytes(contents));
    Result<Layout> layout = read_netcdf_layout(streamed);
    ASSERT_TRUE(layout.ok()) << layout.status().to_string();
    EXPECT_EQ(*layout, *expected);
  }
}

TEST_F(NetcdfReader, RefusesAFileThatEndsBeforeItsDataOrItsHeader) {
  std::string contents = read_text(directory.path() / "classic.nc");
  for (size_t size : {contents.size() / 2, contents.size() - 200, size_t{100}, size_t{5}, size_t{0}}) {
    FileWindow file(as_bytes(contents).first(size));
    EXPECT_EQ(read_netcdf_layout(file).status().code(), StatusCode::corrupt) << size;
  }
}

TEST_F(NetcdfReader, LeavesNetcdf4ToHdf5) {
  Result<Layout> layout = read_here(built_in_readers(), directory.path() / "netcdf4.nc");
#ifdef VARVE_ZOO_WITH_HDF5
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->format, "hdf5");
#else
  EXPECT_FALSE(layout.ok());
#endif
}

}  // namespace
}  // namespace varve
