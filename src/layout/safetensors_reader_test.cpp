#include <gtest/gtest.h>

#include <cstring>

#include "layout/layout_reader.h"
#include "layout/test_files.h"
#include "zoo/array_files.h"
#include "zoo/zoo.h"

namespace varve {
namespace {

Result<Layout> read_tensors(const std::string& contents) {
  FileWindow file(as_bytes(contents));
  return read_safetensors_layout(file);
}

TEST(SafetensorsReader, GivesNamesTypesShapesAndBytes) {
  TemporaryDirectory directory;
  zoo::make_safetensors_files(directory.path());
  const auto path = directory.path() / "model.safetensors";
  const std::string contents = read_text(path);
  const Result<Layout> layout = read_here(built_in_readers(), path);
  ASSERT_TRUE(layout.ok()) << layout.status().to_string();
  EXPECT_TRUE(validate_layout(*layout, contents.size()).ok());
  EXPECT_EQ(layout->format, "safetensors");
  struct Expected {
    const char* name;
    const char* type;
    std::vector<uint64_t> shape;
    size_t at_from_data, bytes;
  };
  constexpr size_t data_bytes = 1131;
  const std::string data = contents.substr(contents.size() - data_bytes);
  for (const Expected& one :
       {Expected{"/weight", "F32LE", {4, 50}, 0, 800}, Expected{"/layers.0.bias", "O2", {64}, 800, 128},
        Expected{"/wave", "F32LE", {5, 5, 2}, 928, 200}, Expected{"/odd", "BYTES", {3}, 1128, 3},
        Expected{"/nothing", "I64LE", {0, 3}, 1131, 0}}) {
    const Variable* variable = find_variable(*layout, one.name);
    ASSERT_NE(variable, nullptr) << one.name;
    EXPECT_EQ(variable->type.name(), one.type) << one.name;
    EXPECT_EQ(variable->shape, one.shape) << one.name;
    EXPECT_EQ(bytes_at(contents, *variable), data.substr(one.at_from_data, one.bytes)) << one.name;
  }
  EXPECT_EQ(layout->variables.size(), 5U);
  EXPECT_TRUE(read_here(built_in_readers(), directory.path() / "empty.safetensors")->variables.empty());
}

TEST(SafetensorsReader, RefusesAFileThatIsCutOffAnywhere) {
  TemporaryDirectory directory;
  zoo::make_safetensors_files(directory.path());
  const std::string whole = read_text(directory.path() / "model.safetensors");
  for (size_t size = 0; size < whole.size(); ++size) EXPECT_FALSE(read_tensors(whole.substr(0, size)).ok()) << size;
}

TEST(SafetensorsReader, RefusesHeadersThatDoNotAgreeWithTheFile) {
  for (const char* header :
       {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,9]}})",
        R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})",
        R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", R"({"a":{"dtype":"F32","shape":[2]}})",
        R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}})",
        R"({"a":{"dtype":"F32","shape":[9223372036854775808,2],"data_offsets":[0,0]}})",
        R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})",
        R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", R"({"a":[1]})", R"({"a":{"b":{"c":1}}})",
        R"([])", R"({"a":1})", R"({"a":{"shape":[[1]]}})", "{", "", "\xff\xff"}) {
    EXPECT_FALSE(read_tensors(zoo::safetensors_file(header, std::string(8, 'x'))).ok()) << header;
  }
  const std::string overlapping = zoo::safetensors_file(
      R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
      std::string(8, 'x'));
  const Result<Layout> layout = read_tensors(overlapping);
  EXPECT_FALSE(layout.ok() && validate_layout(*layout, overlapping.size()).ok());
}

TEST(SafetensorsReader, IsNotImpressedByDepthAndLengths) {
  for (const char* part : {"[", R"({"a":)"}) {
    std::string deep = R"({"a":{"shape":)";
    for (int i = 0; i < 500'000; ++i) deep += part;
    EXPECT_FALSE(read_tensors(zoo::safetensors_file(deep, "")).ok());
  }
  std::string file = zoo::safetensors_file("{}", std::string(1000, 'x'));
  for (const uint64_t length : {uint64_t{1} << 63, UINT64_MAX, uint64_t{1003}}) {
    std::memcpy(file.data(), &length, sizeof length);
    EXPECT_FALSE(read_tensors(file).ok()) << length;
  }
}

}  // namespace
}  // namespace varve
