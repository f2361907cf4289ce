#include "format/image.h"

#include <gtest/gtest.h>

#include <random>

#include "hash/score.h"

namespace varve {
namespace {

constexpr ElementType kDouble{ElementKind::floating, ByteOrder::little, 8};

ImageVariable variable(std::string name, std::vector<uint64_t> shape, ElementType type = kDouble) {
  ImageVariable out{
      .name = std::move(name), .type = type, .shape = std::move(shape), .global_shape = {}, .global_offset = {}};
  out.bytes = type.bytes;
  for (uint64_t extent : out.shape) out.bytes *= extent;
  return out;
}

ImageTable sample() {
  ImageVariable part = variable("density", {3, 5});
  part.global_shape = {6, 5};
  part.global_offset = {3, 0};
  const Result<ImageTable> table =
      plan_image({part, variable("empty", {0}), variable("step", {}),
                  variable("zone/names", {7}, {ElementKind::opaque, ByteOrder::little, 3})});
  EXPECT_TRUE(table.ok());
  return *table;
}

TEST(Image, LaysVariablesDownAlignedInTheOrderOfTheirNames) {
  const ImageTable table = sample();
  EXPECT_EQ(table.header_bytes % kImageAlignmentBytes, 0U);
  EXPECT_EQ(table.variables[0].offset, table.header_bytes);
  EXPECT_EQ(table.variables[1].offset, table.header_bytes + 128);
  EXPECT_EQ(table.variables[2].offset, table.header_bytes + 128);
  EXPECT_EQ(table.variables[3].offset, table.header_bytes + 192);
  EXPECT_EQ(table.image_bytes, table.header_bytes + 192 + 21);
}

TEST(Image, ReadsItsHeaderBack) {
  const ImageTable table = sample();
  const ByteVector header = encode_image_header(table);
  ASSERT_EQ(header.size(), table.header_bytes);
  EXPECT_EQ(*image_header_bytes(ByteSpan(header).first(kImagePrefixBytes), table.image_bytes), table.header_bytes);
  const Result<ImageTable> decoded = decode_image_header(header, table.image_bytes);
  ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
  EXPECT_EQ(*decoded, table);
}

TEST(Image, OfNothingIsOnlyAHeader) {
  const Result<ImageTable> table = plan_image({});
  ASSERT_TRUE(table.ok());
  EXPECT_EQ(table->image_bytes, table->header_bytes);
  EXPECT_EQ(*decode_image_header(encode_image_header(*table), table->image_bytes), *table);
}

TEST(Image, IsAValidLayoutForTheEngine) {
  const ImageTable table = sample();
  const Layout layout = image_layout(table);
  EXPECT_TRUE(validate_layout(layout, table.image_bytes).ok());
  ASSERT_EQ(layout.variables.size(), 4U);
  EXPECT_EQ(layout.variables[0].name, "/density");
  EXPECT_EQ(layout.variables[0].shape, (std::vector<uint64_t>{3, 5}));
  EXPECT_EQ(layout.variables[0].extents, (std::vector<Extent>{{table.variables[0].offset, 120}}));
  EXPECT_TRUE(layout.variables[1].extents.empty());
  EXPECT_EQ(skeleton_extents(layout, table.image_bytes).front(), (Extent{0, table.header_bytes}));
}

TEST(Image, IsAsDocumented) {
  // FORMAT.md, "Snapshot image": its example.
  constexpr std::string_view kExample =
      "5641525645494d4701000000000000001c00000000000000"
      "01017803000801020104010240000000000000001000000000000000"
      "668cf80a0000000000000000";
  ImageVariable part = variable("x", {2});
  part.global_shape = {4};
  part.global_offset = {2};
  const ImageTable table = *plan_image({part});
  EXPECT_EQ(to_hex(encode_image_header(table)), kExample);
  EXPECT_EQ(table.image_bytes, 80U);
}

TEST(Image, NamesItsFileByTheRank) { EXPECT_EQ(image_file_name(7), "rank-000007.varve"); }

TEST(Image, RejectsEveryFlippedBitAndEveryCut) {
  const ImageTable table = sample();
  const ByteVector header = encode_image_header(table);
  for (size_t bit = 0; bit < header.size() * 8; ++bit) {
    ByteVector damaged = header;
    damaged[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_FALSE(decode_image_header(damaged, table.image_bytes).ok()) << bit;
  }
  for (size_t bytes = 0; bytes < header.size(); ++bytes) {
    EXPECT_FALSE(decode_image_header(ByteSpan(header).first(bytes), table.image_bytes).ok()) << bytes;
  }
  EXPECT_FALSE(decode_image_header(header, table.image_bytes + 1).ok());
  EXPECT_FALSE(decode_image_header(header, table.image_bytes - 1).ok());
}

/// A table with these bytes and a checksum that is right.
ByteVector with_checksum(ByteVector header, uint64_t table_bytes) {
  store_le(header.data() + 16, table_bytes);
  const size_t summed = kImagePrefixBytes + table_bytes;
  store_le(header.data() + summed, crc32c(ByteSpan(header).first(summed)));
  return header;
}

TEST(Image, SurvivesHostileTablesWithRightChecksums) {
  const ImageTable table = sample();
  const ByteVector header = encode_image_header(table);
  const auto table_bytes = load_le<uint64_t>(header.data() + 16);
  std::mt19937_64 random(3);
  for (int round = 0; round < 20'000; ++round) {
    ByteVector damaged = header;
    for (uint64_t i = 0; i <= random() % 4; ++i) {
      damaged[kImagePrefixBytes + random() % table_bytes] = static_cast<std::byte>(random());
    }
    const Result<ImageTable> decoded = decode_image_header(with_checksum(damaged, table_bytes), table.image_bytes);
    if (!decoded.ok()) continue;
    EXPECT_TRUE(validate_layout(image_layout(*decoded), table.image_bytes).ok() ||
                decoded->variables != table.variables);
    uint64_t end = decoded->header_bytes;
    for (const ImageVariable& each : decoded->variables) {
      EXPECT_GE(each.offset, end);
      end = each.offset + each.bytes;
      EXPECT_LE(end, table.image_bytes);
    }
  }
}

TEST(Image, RejectsWhatIsNotInOrderOrOutOfPlace) {
  ImageTable table = sample();
  std::swap(table.variables[0].name, table.variables[2].name);
  EXPECT_FALSE(decode_image_header(encode_image_header(table), table.image_bytes).ok());
  table = sample();
  table.variables[1].name = table.variables[0].name;
  EXPECT_FALSE(decode_image_header(encode_image_header(table), table.image_bytes).ok());
  table = sample();
  table.variables[3].offset += kImageAlignmentBytes;
  EXPECT_FALSE(decode_image_header(encode_image_header(table), table.image_bytes).ok());
  table = sample();
  table.variables[0].shape = {3, 4};
  EXPECT_FALSE(decode_image_header(encode_image_header(table), table.image_bytes).ok());
}

TEST(Image, HasSeveralBoxesOfAVariableInALaterVersion) {
  ImageVariable first = variable("density", {3, 5});
  first.global_shape = {6, 5};
  first.global_offset = {3, 0};
  ImageVariable second = first, third = first;
  second.global_offset = {0, 0};
  third.shape = {0, 0};
  third.bytes = 0;
  const ImageTable table = plan_image({first, second, third, variable("step", {})}).value();
  const ByteVector header = encode_image_header(table);
  EXPECT_EQ(header[8], std::byte{2}) << "libraries that know one box alone are not to take the last for all";
  EXPECT_EQ(encode_image_header(sample())[8], std::byte{1}) << "others go on reading what has none";
  EXPECT_EQ(decode_image_header(header, table.image_bytes).value(), table);
  const Layout layout = image_layout(table);
  EXPECT_TRUE(validate_layout(layout, table.image_bytes).ok());
  EXPECT_EQ(layout.variables[1].name, "/density/box1");
  EXPECT_EQ(layout.variables[3].name, "/step");
}

TEST(Image, RejectsBoxesThatAreNotOfOneWhole) {
  ImageVariable part = variable("density", {3, 5});
  part.global_shape = {6, 5};
  for (const ImageVariable& other :
       {variable("density", {3, 5}), variable("density", {15}),
        variable("density", {3, 5}, {ElementKind::signed_integer, ByteOrder::little, 8})}) {
    const ImageTable table = plan_image({part, other}).value();
    EXPECT_EQ(decode_image_header(encode_image_header(table), table.image_bytes).status().code(), StatusCode::corrupt);
  }
}

TEST(Image, RefusesANewerVersionAsUnsupported) {
  const ImageTable table = sample();
  ByteVector header = encode_image_header(table);
  header[8] = std::byte{3};
  EXPECT_EQ(image_header_bytes(header, table.image_bytes).status().code(), StatusCode::unsupported);
}

TEST(Image, TakesNamesOfOneToAThousandBytesWithoutControlCharacters) {
  EXPECT_TRUE(check_variable_name("f").ok());
  EXPECT_TRUE(check_variable_name("Dichte ρ/2").ok());
  EXPECT_TRUE(check_variable_name(std::string(1000, 'x')).ok());
  for (const std::string& bad :
       {std::string(), std::string(1001, 'x'), std::string("a\nb"), std::string("a\0b", 3), std::string("\x7f")}) {
    EXPECT_EQ(check_variable_name(bad).code(), StatusCode::invalid_argument);
  }
}

}  // namespace
}  // namespace varve
