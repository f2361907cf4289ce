#include <gtest/gtest.h>

#include "layout/layout_reader.h"
#include "layout/test_files.h"
#include "zoo/array_files.h"
#include "zoo/pattern.h"

namespace varve {
namespace {

Result<Layout> read_npy(const std::string& contents) {
  FileWindow file(as_bytes(contents));
  return read_npy_layout(file);
}

/// Elements that look random, as text.
std::string elements(size_t bytes, uint32_t seed) {
  const std::vector<char> made = zoo::pattern(bytes, seed);
  return {made.begin(), made.end()};
}

TEST(NpyReader, GivesTypesShapesAndBytes) {
  struct Expected {
    const char* type;
    const char* shape;
    bool fortran_order;
    const char* element;
    std::vector<uint64_t> extents;
    size_t bytes;
  };
  for (const Expected& one :
       {Expected{"<f8", "(3, 4)", false, "F64LE", {3, 4}, 96}, Expected{">f4", "(5,)", false, "F32BE", {5}, 20},
        Expected{"<f2", "(2, 3, 4)", true, "F16LE", {4, 3, 2}, 48}, Expected{"|b1", "()", false, "U8", {}, 1},
        Expected{">i8", "(6L,)", false, "I64BE", {6}, 48}, Expected{"|i1", "(9,)", false, "I8", {9}, 9},
        Expected{"<c8", "(3, 5)", false, "F32LE", {3, 5, 2}, 120},
        Expected{">c16", "(3, 5)", true, "F64BE", {5, 3, 2}, 240}, Expected{"<M8[ns]", "(4,)", false, "I64LE", {4}, 32},
        Expected{"<U10", "(2,)", false, "T40", {2}, 80}, Expected{"|S7", "(2,)", false, "T7", {2}, 14},
        Expected{"|V12", "(2,)", false, "O12", {2}, 24}, Expected{"<f16", "(2,)", false, "F128LE", {2}, 32}}) {
    for (const int version : {1, 2, 3}) {
      const std::string data = elements(one.bytes, 1);
      const std::string file = zoo::npy_file(one.type, one.shape, data, one.fortran_order, version);
      const Result<Layout> layout = read_npy(file);
      ASSERT_TRUE(layout.ok()) << one.type << layout.status().to_string();
      EXPECT_TRUE(validate_layout(*layout, file.size()).ok());
      ASSERT_EQ(layout->variables.size(), 1U);
      const Variable& array = layout->variables[0];
      EXPECT_EQ(array.name, "/array");
      EXPECT_EQ(array.type.name(), one.element) << one.type;
      EXPECT_EQ(array.shape, one.extents) << one.type;
      EXPECT_EQ(bytes_at(file, array), data) << one.type;
    }
  }
}

TEST(NpyReader, TakesRecordsForOpaqueElementsAndObjectsForBytes) {
  const std::string records = zoo::npy_file("[('x', '<f4', (3,)), ('id)', [('a', '<i2')])]", "(20,)", elements(280, 1));
  Result<Layout> layout = read_npy(records);
  ASSERT_TRUE(layout.ok()) << layout.status().to_string();
  EXPECT_EQ(layout->variables[0].type.name(), "O14");
  EXPECT_EQ(layout->variables[0].shape, std::vector<uint64_t>{20});
  layout = read_npy(zoo::npy_file("|O", "(7,)", elements(70, 2)));
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->variables[0].type.name(), "BYTES");
  EXPECT_EQ(layout->variables[0].stored_bytes(), 70U);
}

TEST(NpyReader, FindsEveryArrayOfAFileAndLeavesWhatFollowsThem) {
  const std::string file =
      zoo::npy_file("<f4", "(10,)", elements(40, 1)) + zoo::npy_file("<i4", "(10,)", elements(40, 2)) + "and more";
  const Result<Layout> layout = read_npy(file);
  ASSERT_TRUE(layout.ok());
  ASSERT_EQ(layout->variables.size(), 2U);
  EXPECT_EQ(bytes_at(file, *find_variable(*layout, "/array2")), elements(40, 2));
}

TEST(NpyReader, GivesEmptyArraysNoBytes) {
  const Result<Layout> layout = read_npy(zoo::npy_file("<f4", "(10, 0)", ""));
  ASSERT_TRUE(layout.ok());
  EXPECT_TRUE(layout->variables[0].extents.empty());
}

TEST(NpyReader, RefusesAFileThatIsCutOffAnywhere) {
  const std::string whole = zoo::npy_file("<f8", "(3, 4)", elements(96, 1));
  for (size_t size = 0; size < whole.size(); ++size) EXPECT_FALSE(read_npy(whole.substr(0, size)).ok()) << size;
}

TEST(NpyReader, RefusesShapesThatNoFileHolds) {
  for (const char* shape : {"(9223372036854775808,)", "(4294967296, 4294967296)", "(18446744073709551616,)", "(-1,)",
                            "(3", "3", "(3,,)", "(None,)"}) {
    EXPECT_FALSE(read_npy(zoo::npy_file("<f8", shape, elements(96, 1))).ok()) << shape;
  }
  std::string many = "(";
  for (int i = 0; i < 100; ++i) many += "1,";
  EXPECT_FALSE(read_npy(zoo::npy_file("<f8", many + ")", elements(8, 1))).ok());
}

TEST(NpyReader, RefusesHeadersThatAreNone) {
  const std::string deep(100'000, '[');
  for (const std::string& type : {deep, std::string("['"), std::string("[\\']"), std::string("")})
    EXPECT_FALSE(read_npy(zoo::npy_file(type.empty() ? "[" : type, "(3,)", elements(24, 1), false, 2)).ok());
  std::string file = zoo::npy_file("<f8", "(3,)", elements(24, 1), false, 2);
  file.replace(8, 4, "\xff\xff\xff\xff");
  EXPECT_FALSE(read_npy(file).ok());
}

}  // namespace
}  // namespace varve
