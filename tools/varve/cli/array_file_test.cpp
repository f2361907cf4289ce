#include "cli/array_file.h"

#include <gtest/gtest.h>

namespace varve::cli {
namespace {

ElementType type(std::string_view name) { return ElementType::parse(name).value(); }

TEST(ArrayFile, ANumpyHeaderIsThatOfVersionOneAndAligned) {
  const std::string header = npy_header(type("F64LE"), {3, 4});
  EXPECT_EQ(header.size() % 64, 0u);
  EXPECT_EQ(header.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  EXPECT_EQ(static_cast<unsigned char>(header[8]) + 256u * static_cast<unsigned char>(header[9]), header.size() - 10);
  EXPECT_EQ(header.substr(10, 62), "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }   ");
  EXPECT_EQ(header.back(), '\n');
}

TEST(ArrayFile, ANumpyHeaderNamesEachTypeAndShape) {
  for (const auto& [name, written] : std::vector<std::pair<std::string, std::string>>{{"F32BE", "'>f4'"},
                                                                                      {"F64LE", "'<f8'"},
                                                                                      {"I8", "'|i1'"},
                                                                                      {"U8", "'|u1'"},
                                                                                      {"I16BE", "'>i2'"},
                                                                                      {"U64LE", "'<u8'"},
                                                                                      {"T80", "'|S80'"},
                                                                                      {"O12", "'|V12'"},
                                                                                      {"BYTES", "'|u1'"}}) {
    EXPECT_NE(npy_header(type(name), {}).find(written), std::string::npos) << name;
  }
  EXPECT_NE(npy_header(type("U8"), {}).find("'shape': (), "), std::string::npos);
  EXPECT_NE(npy_header(type("U8"), {7}).find("'shape': (7,), "), std::string::npos);
  const std::string largest = npy_header(type("U8"), std::vector<uint64_t>(32, UINT64_MAX));
  EXPECT_LT(largest.size(), 65'536u);
  EXPECT_EQ(largest.size() % 64, 0u);
}

TEST(ArrayFile, TheNameSaysWhatAFileIsToBe) {
  EXPECT_EQ(array_file_kind("a.npy").value(), ArrayFileKind::npy);
  EXPECT_EQ(array_file_kind("a.h5").value(), ArrayFileKind::hdf5);
  EXPECT_EQ(array_file_kind("a.hdf5").value(), ArrayFileKind::hdf5);
  for (const char* name : {"a", "a.txt", "npy", "a.npy.gz"}) EXPECT_FALSE(array_file_kind(name).ok()) << name;
}

TEST(ArrayFile, AnHdf5NameIsMadeOfGroups) {
  EXPECT_EQ(hdf5_path("/Fluid//Density").value(), (std::vector<std::string>{"Fluid", "Density"}));
  EXPECT_EQ(hdf5_path("time").value(), std::vector<std::string>{"time"});
  EXPECT_FALSE(hdf5_path("a/./b").ok());
  EXPECT_FALSE(hdf5_path(std::string_view("a\0b", 3)).ok());
}

}  // namespace
}  // namespace varve::cli
