#include "layout/raw_layout.h"

#include <gtest/gtest.h>

namespace varve {
namespace {

TEST(RawDescription, IsParsedFromATypeAShapeAndAHeader) {
  Result<RawDescription> full = parse_raw_description("f64be:2,3,4@512");
  ASSERT_TRUE(full.ok());
  EXPECT_EQ(full->type.name(), "F64BE");
  EXPECT_EQ(full->shape, (std::vector<uint64_t>{2, 3, 4}));
  EXPECT_EQ(full->header_bytes, 512U);
  Result<RawDescription> shortest = parse_raw_description("i32");
  ASSERT_TRUE(shortest.ok());
  EXPECT_TRUE(shortest->shape.empty());
  EXPECT_EQ(shortest->header_bytes, 0U);
}

TEST(RawDescription, IsRefusedWhenItMakesNoSense) {
  for (const char* text :
       {"", "f63", "f64:", "f64:0", "f64:1,", "f64:,1", "f64:1,x", "f64:1@", "f64:1@x", "f64:-1", "f64@1@2",
        "f64:99999999999999999999", "f64:1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1"}) {
    EXPECT_EQ(parse_raw_description(text).status().code(), StatusCode::invalid_argument) << text;
  }
}

TEST(RawLayout, PutsTheArrayAfterTheHeader) {
  Result<Layout> layout = raw_layout(*parse_raw_description("f32:10,10@12"), 412, "/field");
  ASSERT_TRUE(layout.ok()) << layout.status().to_string();
  EXPECT_TRUE(validate_layout(*layout, 412).ok());
  EXPECT_EQ(layout->variables[0].extents, (std::vector<Extent>{{12, 400}}));
  EXPECT_EQ(skeleton_extents(*layout, 412), (std::vector<Extent>{{0, 12}}));
}

TEST(RawLayout, TakesTheLengthFromTheFileIfNoneIsGiven) {
  Result<Layout> layout = raw_layout(*parse_raw_description("f64@4"), 84, "/field");
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->variables[0].shape, (std::vector<uint64_t>{10}));
}

TEST(RawLayout, RefusesADescriptionOfAnotherSize) {
  EXPECT_FALSE(raw_layout(*parse_raw_description("f32:10,10"), 401, "/f").ok());
  EXPECT_FALSE(raw_layout(*parse_raw_description("f32@100"), 50, "/f").ok());
  EXPECT_FALSE(raw_layout(*parse_raw_description("f32"), 401, "/f").ok());
  EXPECT_FALSE(raw_layout(*parse_raw_description("f64:18446744073709551615,2"), 50, "/f").ok());
}

TEST(SidecarLayout, ListsVariablesAtTheirOffsetsOrOneAfterTheOther) {
  Result<Layout> layout = sidecar_layout(R"({"variables": [
      {"name": "/a", "type": "f64", "shape": [2, 3], "offset": 16},
      {"name": "/b", "type": "u8", "shape": [4]},
      {"name": "/c", "type": "i32be"},
      {"name": "/none", "type": "i32be", "shape": [0]}], "more": 1})",
                                         100);
  ASSERT_TRUE(layout.ok()) << layout.status().to_string();
  EXPECT_TRUE(validate_layout(*layout, 100).ok());
  EXPECT_EQ(layout->variables[0].extents, (std::vector<Extent>{{16, 48}}));
  EXPECT_EQ(layout->variables[1].extents, (std::vector<Extent>{{64, 4}}));
  EXPECT_EQ(layout->variables[2].extents, (std::vector<Extent>{{68, 4}}));
  EXPECT_TRUE(layout->variables[3].extents.empty());
}

TEST(SidecarLayout, RefusesWhatIsNotSuchADescriptionOrDoesNotFit) {
  for (const char* text :
       {"", "{", "[]", "{}", R"({"variables": 1})", R"({"variables": [1]})", R"({"variables": [{}]})",
        R"({"variables": [{"name": "a"}]})", R"({"variables": [{"name": 1, "type": "f64"}]})",
        R"({"variables": [{"name": "a", "type": "f65"}]})",
        R"({"variables": [{"name": "a", "type": "f64", "shape": 3}]})",
        R"({"variables": [{"name": "a", "type": "f64", "shape": [-1]}]})",
        R"({"variables": [{"name": "a", "type": "f64", "shape": [1.5]}]})",
        R"({"variables": [{"name": "a", "type": "f64", "offset": -8}]})",
        R"({"variables": [{"name": "a", "type": "f64", "shape": [14]}]})",
        R"({"variables": [{"name": "a", "type": "f64", "offset": 18446744073709551615}]})",
        R"({"variables": [{"name": "a", "type": "f64", "shape": [4294967296, 4294967296, 4294967296]}]})"}) {
    EXPECT_FALSE(sidecar_layout(text, 100).ok()) << text;
  }
  EXPECT_FALSE(sidecar_layout(std::string(1'000'000, '['), 100).ok());
}

TEST(SidecarPlaces, AreThoseOfTheVariablesThatSayOne) {
  const auto places = sidecar_places(R"({"variables": [
      {"name": "/a", "global_shape": [24, 400], "global_offset": [18, 0]},
      {"name": "/b", "type": "u8", "shape": [4]},
      {"name": "c", "type": "u8", "shape": [4], "global_shape": [9]},
      {"name": "/end", "global_shape": [0, 18446744073709551615], "global_offset": [0, 18446744073709551615]}]})");
  ASSERT_TRUE(places.ok()) << places.status().to_string();
  ASSERT_EQ(places->size(), 3u);
  EXPECT_EQ(places->at(0).name, "/a");
  EXPECT_EQ(places->at(0).global_shape, (std::vector<uint64_t>{24, 400}));
  EXPECT_EQ(places->at(0).global_offset, (std::vector<uint64_t>{18, 0}));
  EXPECT_EQ(places->at(1).name, "c");
  EXPECT_EQ(places->at(1).global_offset, (std::vector<uint64_t>{0}));
  EXPECT_EQ(places->at(2).name, "/end");
}

TEST(SidecarPlaces, AreRefusedIfTheyMakeNoSense) {
  const auto entry = [](const std::string& members) { return R"({"variables": [{"name": "a", )" + members + "}]}"; };
  std::string ones = "1";
  for (size_t i = 0; i < kDimensionsMax; ++i) ones += ",1";
  for (const std::string& text : {
           std::string(),
           std::string("{"),
           std::string("[]"),
           std::string(R"({"variables": {}})"),
           std::string(R"({"variables": [1]})"),
           std::string(R"({"variables": [{"global_shape": [1]}]})"),
           std::string(R"({"variables": [{"name": 1, "global_shape": [1]}]})"),
           entry(R"("global_shape": 4)"),
           entry(R"("global_shape": null)"),
           entry(R"("global_shape": [-1])"),
           entry(R"("global_shape": [1.5])"),
           entry(R"("global_shape": ["1"])"),
           entry(R"("global_shape": [[1]])"),
           entry(R"("global_shape": [18446744073709551616])"),
           entry(R"("global_shape": [4294967296, 4294967296])"),
           entry(R"("global_shape": [18446744073709551615, 2])"),
           entry(R"("global_shape": [)" + ones + "]"),
           entry(R"("global_shape": [4], "global_offset": [-1])"),
           entry(R"("global_shape": [4], "global_offset": 1)"),
           entry(R"("global_shape": [4], "global_offset": [5])"),
           entry(R"("global_shape": [4], "global_offset": [18446744073709551615])"),
           entry(R"("global_shape": [4], "global_offset": [0, 0])"),
           entry(R"("global_shape": [4, 4], "global_offset": [0])"),
           entry(R"("global_offset": [0])"),
       }) {
    const Status said = sidecar_places(text).status();
    EXPECT_TRUE(said.code() == StatusCode::invalid_argument || said.code() == StatusCode::resource_limit)
        << text << ": " << said.to_string();
  }
  EXPECT_FALSE(sidecar_places(std::string(1'000'000, '[')).ok());
  std::string many = entry(R"("global_shape": [)");
  many.resize(many.size() - 3);
  for (size_t i = 0; i < 1'000'000; ++i) many += "1,";
  EXPECT_EQ(sidecar_places(many + "1]}]}").status().code(), StatusCode::resource_limit);
  EXPECT_EQ(sidecar_places(std::string(kSidecarBytesMax + 1, ' ')).status().code(), StatusCode::resource_limit);
}

}  // namespace
}  // namespace varve
