#include "layout/layout.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace varve {
namespace {

Layout random_layout() {
  Layout layout{.format = *rc::gen::element<std::string>("hdf5", "netcdf", ""), .variables = {}};
  auto count = *rc::gen::inRange<size_t>(0, 5);
  for (size_t i = 0; i < count; ++i) {
    Variable variable;
    variable.name = *rc::gen::arbitrary<std::string>();
    variable.type = {static_cast<ElementKind>(*rc::gen::inRange(0, 5)), static_cast<ByteOrder>(*rc::gen::inRange(0, 2)),
                     *rc::gen::arbitrary<uint32_t>()};
    variable.encoded = *rc::gen::arbitrary<bool>();
    variable.shape = *rc::gen::resize(10, rc::gen::arbitrary<std::vector<uint64_t>>());
    variable.run_shape = *rc::gen::resize(3, rc::gen::arbitrary<std::vector<uint64_t>>());
    for (auto [offset, bytes] : *rc::gen::arbitrary<std::vector<std::pair<uint64_t, uint64_t>>>()) {
      variable.extents.push_back({offset, bytes});
    }
    layout.variables.push_back(std::move(variable));
  }
  return layout;
}

TEST(LayoutCodec, GivesBackWhatItTook) {
  bool holds = rc::check([] {
    Layout layout = random_layout();
    ByteVector bytes;
    ByteWriter writer(bytes);
    encode_layout(layout, writer);
    ByteReader reader(bytes);
    Result<Layout> decoded = decode_layout(reader);
    RC_ASSERT(decoded.ok());
    RC_ASSERT(*decoded == layout);
    RC_ASSERT(reader.at_end());
  });
  EXPECT_TRUE(holds);
}

TEST(LayoutCodec, DecodesOrRejectsDamagedBytesWithoutReadingPastThem) {
  bool holds = rc::check([] {
    ByteVector bytes;
    ByteWriter writer(bytes);
    encode_layout(random_layout(), writer);
    bytes.resize(*rc::gen::inRange<size_t>(0, bytes.size() + 1));
    if (!bytes.empty()) {
      bytes[*rc::gen::inRange<size_t>(0, bytes.size())] = static_cast<std::byte>(*rc::gen::inRange(0, 256));
    }
    ByteReader reader(bytes);
    Result<Layout> decoded = decode_layout(reader);
    if (decoded.ok()) validate_layout(*decoded, 1000).ignore("only that it returns counts here");
  });
  EXPECT_TRUE(holds);
}

TEST(LayoutCodec, RejectsACountThatCannotFit) {
  ByteVector bytes;
  ByteWriter writer(bytes);
  writer.text("raw");
  writer.varint(uint64_t{1} << 60);
  ByteReader reader(bytes);
  EXPECT_EQ(decode_layout(reader).status().code(), StatusCode::corrupt);
}

}  // namespace
}  // namespace varve
