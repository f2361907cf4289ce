#include <gtest/gtest.h>

#include "layout/layout_reader.h"
#include "layout/test_files.h"
#include "zoo/array_files.h"
#include "zoo/pattern.h"
#include "zoo/zoo.h"

namespace varve {
namespace {

Result<Layout> read_stream(const std::string& contents) {
  FileWindow file(as_bytes(contents));
  return read_torch_stream_layout(file);
}

std::vector<std::string> described(const Layout& layout) {
  std::vector<std::string> texts;
  for (const Variable& variable : layout.variables) {
    texts.push_back(variable.name + " " + variable.type.name());
    for (const uint64_t extent : variable.shape) texts.back() += " " + std::to_string(extent);
  }
  return texts;
}

std::string random_text(size_t bytes, uint32_t seed) {
  const std::vector<char> made = zoo::pattern(bytes, seed);
  return {made.begin(), made.end()};
}

TEST(TorchStreamReader, NamesTheTensorsInTheOrderOfTheirData) {
  const TemporaryDirectory directory;
  zoo::make_torch_stream_files(directory.path());
  const std::string contents = read_text(directory.path() / "state.pt");
  const Result<Layout> layout = read_here(built_in_readers(), directory.path() / "state.pt");
  ASSERT_TRUE(layout.ok()) << layout.status().to_string();
  EXPECT_TRUE(validate_layout(*layout, contents.size()).ok());
  EXPECT_EQ(layout->format, "torch");
  EXPECT_EQ(described(*layout), (std::vector<std::string>{"/half O2 64", "/model/layer1.weight F32LE 10 20",
                                                          "/optimizer/state/0/exp_avg F64LE 100"}));
  EXPECT_EQ(bytes_at(contents, layout->variables[0]), random_text(128, 7));
  EXPECT_EQ(bytes_at(contents, layout->variables[1]), random_text(800, 5));
  EXPECT_EQ(bytes_at(contents, layout->variables[2]), random_text(800, 6));
}

zoo::PickleWriter longs(uint32_t count, const std::string& before = {}) {
  zoo::PickleWriter pickle;
  pickle.raw("}(").text("notes").text(before).text("w").tensor("LongStorage", "0", count, 0, {count}, {1}).raw("u");
  return pickle;
}

TEST(TorchStreamReader, IsLittleEndianWhateverTheMachineWasAndMayHaveLongPickles) {
  const std::string file = zoo::torch_stream(longs(10, std::string(300'000, 'n')).end(),
                                             {{"0", 10, std::string(80, 'x')}}, /*little_endian=*/false);
  const Result<Layout> layout = read_stream(file);
  ASSERT_TRUE(layout.ok()) << layout.status().to_string();
  EXPECT_EQ(described(*layout), std::vector<std::string>{"/w I64LE 10"});
  EXPECT_EQ(layout->variables[0].extents[0].offset, file.size() - 80);
}

TEST(TorchStreamReader, RefusesWhatEndsTooSoonOrLies) {
  const std::string file = zoo::torch_stream(longs(10).end(), {{"0", 10, std::string(80, 'x')}});
  ASSERT_TRUE(read_stream(file).ok());
  for (size_t size = 0; size < file.size(); ++size) EXPECT_FALSE(read_stream(file.substr(0, size)).ok()) << size;
  for (const uint64_t elements : {uint64_t{11}, uint64_t{1} << 61, UINT64_MAX}) {
    EXPECT_EQ(read_stream(zoo::torch_stream(longs(10).end(), {{"0", elements, std::string(80, 'x')}})).status().code(),
              StatusCode::corrupt);
  }
  EXPECT_EQ(read_stream(zoo::torch_stream(longs(10).end(), {{"1", 10, std::string(80, 'x')}})).status().code(),
            StatusCode::unsupported);
}

}  // namespace
}  // namespace varve
