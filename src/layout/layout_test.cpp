#include "layout/layout.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

namespace varve {
namespace {

constexpr ElementType kF64{ElementKind::floating, ByteOrder::little, 8};

Layout one_variable(std::vector<Extent> extents, ElementType type = {}) {
  Variable variable;
  variable.name = "/v";
  variable.type = type;
  variable.shape = {1};
  variable.extents = std::move(extents);
  return {.format = "raw", .variables = {variable}};
}

TEST(ValidateLayout, AcceptsNeighboursThatTouch) {
  EXPECT_TRUE(validate_layout(one_variable({{0, 8}, {8, 8}}, kF64), 16).ok());
}

TEST(ValidateLayout, RejectsExtentsThatOverlapWithinAVariableOrAcrossTwo) {
  EXPECT_EQ(validate_layout(one_variable({{0, 8}, {4, 8}}), 16).code(), StatusCode::corrupt);
  Layout two = one_variable({{100, 50}});
  two.variables.push_back(one_variable({{10, 91}}).variables[0]);
  EXPECT_EQ(validate_layout(two, 1000).code(), StatusCode::corrupt);
}

TEST(ValidateLayout, RejectsExtentsOutsideTheFile) {
  EXPECT_EQ(validate_layout(one_variable({{0, 17}}), 16).code(), StatusCode::corrupt);
  EXPECT_EQ(validate_layout(one_variable({{17, 1}}), 16).code(), StatusCode::corrupt);
  EXPECT_EQ(validate_layout(one_variable({{8, UINT64_MAX - 4}}), 16).code(), StatusCode::corrupt);
}

TEST(ValidateLayout, RejectsAnEmptyExtent) {
  EXPECT_EQ(validate_layout(one_variable({{0, 0}}), 16).code(), StatusCode::corrupt);
}

TEST(ValidateLayout, RejectsTypesThatCannotBe) {
  EXPECT_FALSE(validate_layout(one_variable({}, {ElementKind::floating, ByteOrder::little, 0}), 16).ok());
  EXPECT_FALSE(validate_layout(one_variable({}, {ElementKind::floating, ByteOrder::little, 17}), 16).ok());
  EXPECT_FALSE(validate_layout(one_variable({}, {ElementKind::text, ByteOrder::big, 4}), 16).ok());
  EXPECT_FALSE(validate_layout(one_variable({}, {ElementKind::signed_integer, ByteOrder::big, 1}), 16).ok());
  EXPECT_FALSE(validate_layout(one_variable({}, {static_cast<ElementKind>(9), ByteOrder::little, 1}), 16).ok());
}

TEST(ValidateLayout, RejectsPartsOfElementsUnlessTheVariableIsEncoded) {
  Layout layout = one_variable({{0, 12}}, kF64);
  EXPECT_FALSE(validate_layout(layout, 16).ok());
  layout.variables[0].encoded = true;
  EXPECT_TRUE(validate_layout(layout, 16).ok());
}

TEST(ValidateLayout, RejectsARunThatIsNotItsArray) {
  Layout layout = one_variable({{0, 32}, {64, 32}}, kF64);
  layout.variables[0].run_shape = {2, 2};
  EXPECT_TRUE(validate_layout(layout, 96).ok());
  layout.variables[0].run_shape = {2, 3};
  EXPECT_FALSE(validate_layout(layout, 96).ok());
  layout.variables[0].run_shape = {UINT64_MAX, UINT64_MAX};
  EXPECT_FALSE(validate_layout(layout, 96).ok());
}

TEST(ValidateLayout, HoldsNamesAndDimensionsToTheirLimits) {
  Layout layout = one_variable({});
  layout.variables[0].name.clear();
  EXPECT_FALSE(validate_layout(layout, 0).ok());
  layout.variables[0].name.assign(kVariableNameBytesMax + 1, 'n');
  EXPECT_FALSE(validate_layout(layout, 0).ok());
  layout.variables[0].name = std::string("a\0b", 3);
  EXPECT_FALSE(validate_layout(layout, 0).ok());
  layout.variables[0].name = "v";
  layout.variables[0].shape.assign(kDimensionsMax + 1, 1);
  EXPECT_FALSE(validate_layout(layout, 0).ok());
}

TEST(OpaqueLayout, CoversTheWholeFileAndNothingOfAnEmptyOne) {
  Layout layout = opaque_layout(100, "/file");
  ASSERT_EQ(layout.variables.size(), 1U);
  EXPECT_EQ(layout.variables[0].extents, (std::vector<Extent>{{0, 100}}));
  EXPECT_EQ(layout.variables[0].type.name(), "BYTES");
  EXPECT_TRUE(validate_layout(layout, 100).ok());
  EXPECT_TRUE(skeleton_extents(layout, 100).empty());
  EXPECT_TRUE(opaque_layout(0, "/file").variables.empty());
}

TEST(SkeletonExtents, JoinsWhatLiesBetweenTheVariables) {
  Layout layout = one_variable({{50, 10}, {10, 10}, {20, 5}});
  EXPECT_EQ(skeleton_extents(layout, 70), (std::vector<Extent>{{0, 10}, {25, 25}, {60, 10}}));
  EXPECT_EQ(skeleton_extents(Layout{}, 7), (std::vector<Extent>{{0, 7}}));
  EXPECT_TRUE(skeleton_extents(Layout{}, 0).empty());
}

TEST(SkeletonExtents, TogetherWithTheVariablesCoverEveryByteOnce) {
  bool holds = rc::check([] {
    auto file_bytes = *rc::gen::inRange<size_t>(1, 200);
    std::vector<int> covered(file_bytes, 0);
    Layout layout;
    auto cuts = *rc::gen::container<std::vector<size_t>>(rc::gen::inRange<size_t>(0, file_bytes + 1));
    std::sort(cuts.begin(), cuts.end());
    for (size_t i = 0; i + 1 < cuts.size(); i += 2) {
      if (cuts[i] == cuts[i + 1]) continue;
      layout.variables.push_back(one_variable({{cuts[i], cuts[i + 1] - cuts[i]}}).variables[0]);
    }
    std::reverse(layout.variables.begin(), layout.variables.end());
    RC_ASSERT(validate_layout(layout, file_bytes).ok());
    auto mark = [&covered](const Extent& extent) {
      for (uint64_t i = 0; i < extent.bytes; ++i) ++covered[extent.offset + i];
    };
    for (const Variable& variable : layout.variables)
      std::for_each(variable.extents.begin(), variable.extents.end(), mark);
    std::vector<Extent> gaps = skeleton_extents(layout, file_bytes);
    std::for_each(gaps.begin(), gaps.end(), mark);
    RC_ASSERT(std::all_of(covered.begin(), covered.end(), [](int times) { return times == 1; }));
  });
  EXPECT_TRUE(holds);
}

}  // namespace
}  // namespace varve
