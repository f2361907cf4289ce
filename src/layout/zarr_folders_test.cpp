#include "layout/zarr_folders.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "layout/layout_service.h"
#include "layout/test_files.h"

namespace varve {
namespace {

constexpr std::string_view kPlain2 =
    R"({"zarr_format":2,"shape":[10,30],"chunks":[5,10],"dtype":">f4","compressor":null,"filters":null,"order":"C",)"
    R"("fill_value":"NaN"})";
constexpr std::string_view kPlain3 = R"({"zarr_format":3,"node_type":"array","shape":[10,30],"data_type":"int16",)"
                                     R"("chunk_grid":{"name":"regular","configuration":{"chunk_shape":[5,10]}},)"
                                     R"("chunk_key_encoding":{"name":"default","configuration":{"separator":"/"}},)"
                                     R"("codecs":[{"name":"bytes","configuration":{"endian":"big"}}],"fill_value":0})";

std::string replaced(std::string_view text, std::string_view what, std::string_view by) {
  std::string made(text);
  return made.replace(made.find(what), what.size(), by);
}

class ZarrFoldersTest : public testing::Test {
 protected:
  void write(const std::string& name, std::string_view contents) {
    const auto path = directory.path() / name;
    std::filesystem::create_directories(path.parent_path());
    write_text(path, contents);
  }
  std::optional<Variable> chunk(const std::string& name, uint64_t file_bytes) {
    std::optional<Layout> layout = ZarrFolders().chunk_layout((directory.path() / name).string(), file_bytes);
    if (!layout) return std::nullopt;
    EXPECT_TRUE(validate_layout(*layout, file_bytes).ok());
    EXPECT_EQ(layout->format, "zarr");
    return layout->variables.at(0);
  }
  TemporaryDirectory directory;
};

TEST_F(ZarrFoldersTest, GivesChunksTheNameTypeAndShapeOfTheirArray) {
  write("state.zarr/.zgroup", R"({"zarr_format":2})");
  write("state.zarr/ocean/.zgroup", R"({"zarr_format":2})");
  write("state.zarr/ocean/heat/.zarray", kPlain2);
  for (const char* name : {"state.zarr/ocean/heat/1.2", "state.zarr/ocean/heat/1/2"}) {
    const std::optional<Variable> found = chunk(name, 200);
    ASSERT_TRUE(found) << name;
    EXPECT_EQ(found->name, "/ocean/heat");
    EXPECT_EQ(found->type.name(), "F32BE");
    EXPECT_EQ(found->shape, (std::vector<uint64_t>{5, 10}));
  }
  write("new.zarr/zarr.json", R"({"zarr_format":3,"node_type":"group"})");
  write("new.zarr/heat/zarr.json", kPlain3);
  for (const char* name : {"new.zarr/heat/c/1/2", "new.zarr/heat/c.1.2"}) {
    const std::optional<Variable> found = chunk(name, 100);
    ASSERT_TRUE(found) << name;
    EXPECT_EQ(found->name, "/heat");
    EXPECT_EQ(found->type.name(), "I16BE");
    EXPECT_EQ(found->shape, (std::vector<uint64_t>{5, 10}));
  }
}

TEST_F(ZarrFoldersTest, ReversesTheShapeOfFortransOrder) {
  write("heat/.zarray", replaced(kPlain2, "\"C\"", "\"F\""));
  EXPECT_EQ(chunk("heat/0.0", 200)->shape, (std::vector<uint64_t>{10, 5}));
}

TEST_F(ZarrFoldersTest, GivesCompressedChunksANameAlone) {
  write("a/.zarray", replaced(kPlain2, "\"compressor\":null", R"("compressor":{"id":"blosc"})"));
  write("b/.zarray", replaced(kPlain2, "\"filters\":null", R"("filters":[{"id":"delta"}])"));
  write("c3/zarr.json", replaced(kPlain3, "}],", R"(},{"name":"zstd"}],)"));
  for (const char* name : {"a/0.0", "b/0.0", "c3/c/0/0"}) {
    const std::optional<Variable> found = chunk(name, 77);
    ASSERT_TRUE(found) << name;
    EXPECT_TRUE(found->encoded);
    EXPECT_EQ(found->name, "/" + std::string(name).substr(0, std::string(name).find('/')));
    EXPECT_EQ(found->stored_bytes(), 77U);
  }
}

TEST_F(ZarrFoldersTest, DoesNotTakeElementsOfUnknownTypesForEncoded) {
  write("particles/.zarray", replaced(kPlain2, "\">f4\"", R"([["x","<f4"],["cell","<i4"]])"));
  const std::optional<Variable> found = chunk("particles/0.0", 400);
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->encoded);
  EXPECT_EQ(found->type.name(), "BYTES");
}

TEST_F(ZarrFoldersTest, TakesChunksOfAnotherSizeForBytes) {
  write("heat/.zarray", kPlain2);
  EXPECT_EQ(chunk("heat/0.0", 199)->type.name(), "BYTES");
  write("odd/.zarray", replaced(kPlain2, "[5,10]", "[9223372036854775808,10]"));
  EXPECT_EQ(chunk("odd/0.0", 200)->type.name(), "BYTES");
}

TEST_F(ZarrFoldersTest, KnowsArraysWithoutDimensions) {
  write("old/.zarray", replaced(replaced(kPlain2, "[10,30]", "[]"), "[5,10]", "[]"));
  EXPECT_EQ(chunk("old/0", 4)->shape, std::vector<uint64_t>{});
  write("new/zarr.json", replaced(replaced(kPlain3, "[10,30]", "[]"), "[5,10]", "[]"));
  EXPECT_EQ(chunk("new/c", 2)->shape, std::vector<uint64_t>{});
}

using Place = std::optional<std::vector<uint64_t>>;

TEST(ZarrArray, TellsWhichChunkAFileIs) {
  ZarrArray old = parse_zarr2_array(kPlain2).value(), fresh = parse_zarr3_array(kPlain3).value();
  EXPECT_EQ(old.shape, (std::vector<uint64_t>{10, 30}));
  EXPECT_EQ(zarr_chunk_place(old, "1.2"), Place({1, 2}));
  EXPECT_EQ(zarr_chunk_place(old, "1/20"), Place({1, 20}));
  EXPECT_EQ(zarr_chunk_place(fresh, "c/1/2"), Place({1, 2}));
  for (const char* name : {"", "1", "1.2.3", "1.", ".1", "1..2", "1.-2", "c/1/2", "1.18446744073709551616"})
    EXPECT_EQ(zarr_chunk_place(old, name), Place()) << name;
  const ZarrArray turned = parse_zarr2_array(replaced(kPlain2, "\"C\"", "\"F\"")).value();
  EXPECT_EQ(turned.shape, (std::vector<uint64_t>{30, 10}));
  EXPECT_EQ(zarr_chunk_place(turned, "1.2"), Place({2, 1}));
}

TEST(ZarrArray, KnowsWhatMissingChunksHold) {
  const auto fill_of = [](const std::string& type, const std::string& value) -> std::optional<std::string> {
    const std::string text = replaced(replaced(kPlain2, ">f4", type), "\"NaN\"", value);
    const std::optional<ByteVector> fill = parse_zarr2_array(text).value().fill;
    if (!fill) return std::nullopt;
    std::string hex;
    for (const std::byte byte : *fill) hex += fmt::format("{:02x}", static_cast<unsigned>(byte));
    return hex;
  };
  EXPECT_EQ(fill_of(">f4", "\"NaN\""), "7fc00000");
  EXPECT_EQ(fill_of("<f8", "1.5"), "000000000000f83f");
  EXPECT_EQ(fill_of("<f8", "-0.0"), "0000000000000080");
  EXPECT_EQ(fill_of("<f4", "\"-Infinity\""), "000080ff");
  EXPECT_EQ(fill_of("<i2", "-2"), "feff");
  EXPECT_EQ(fill_of(">i8", "258"), "0000000000000102");
  EXPECT_EQ(fill_of("|b1", "true"), "01");
  EXPECT_EQ(fill_of("<c8", "[0.0,0.0]"), "00000000");
  for (const char* type : {"<f8", "<i4", "<f2", "<c16", "|S3"}) {
    const std::optional<std::string> none = fill_of(type, "null");
    ASSERT_TRUE(none) << type;
    EXPECT_EQ(none->find_first_not_of('0'), std::string::npos) << type;
  }
  EXPECT_EQ(fill_of("|i1", "-128"), "80");
  EXPECT_EQ(fill_of("<u8", "18446744073709551615"), "ffffffffffffffff");
  for (const auto& [type, value] : {std::pair("|u1", "256"), {"|i1", "128"}, {"<i2", "-32769"}, {"<u4", "-1"}})
    EXPECT_EQ(fill_of(type, value), std::nullopt) << value;
  EXPECT_EQ(fill_of("<f4", "1e300"), std::nullopt);
  // Subnormal ones, ties between two, and those next to what is too large.
  for (const auto& [value, bits] : {std::pair("1.5", "003e"),
                                    {"-0.0", "0080"},
                                    {"65504.0", "ff7b"},
                                    {"65519.9", "ff7b"},
                                    {"\"NaN\"", "007e"},
                                    {"\"-Infinity\"", "00fc"},
                                    {"5.9604644775390625e-08", "0100"},
                                    {"2.98e-08", "0000"},
                                    {"6.0975552e-05", "ff03"},
                                    {"6.103515625e-05", "0004"},
                                    {"2049.0", "0068"},
                                    {"2051.0", "0268"},
                                    {"-0.333251953125", "55b5"}})
    EXPECT_EQ(fill_of("<f2", value), bits) << value;
  for (const char* value : {"65520.0", "1e300"}) EXPECT_EQ(fill_of("<f2", value), std::nullopt) << value;
  EXPECT_EQ(fill_of(">f4", "\"0x7fc00001\""), "7fc00001");
  EXPECT_EQ(fill_of("<f8", "\"0x7ff8000000000001\""), "010000000000f87f");
  EXPECT_EQ(fill_of("<c8", "[0.0,1.0]"), "000000000000803f");
  EXPECT_EQ(fill_of("<c8", "[\"NaN\",1.0]"), "0000c07f0000803f");
  EXPECT_EQ(fill_of("<c8", "0.0"), "00000000");
  EXPECT_EQ(fill_of("<c8", "[0.0]"), std::nullopt);
  EXPECT_EQ(fill_of("<c8", "1.0"), std::nullopt);
  for (const char* text : {"\"AAAA\"", "\"0x7fc00001\"", "\"0x7ff800000000000g\"", "\"0x-ff8000000000001\""})
    EXPECT_EQ(fill_of("<f8", text), std::nullopt) << text;
}

TEST_F(ZarrFoldersTest, LeavesOtherFilesAlone) {
  write("heat/.zarray", kPlain2);
  write("group/zarr.json", R"({"zarr_format":3,"node_type":"group"})");
  for (const char* name : {"heat/.zarray", "heat/0", "heat/0.0.0", "heat/0.", "heat/.0.0", "heat/0..0", "heat/a.0",
                           "heat/c/0/0", "heat/0.0/x", "other/0.0", "group/c/0/0", "0.0"}) {
    EXPECT_FALSE(chunk(name, 200)) << name;
  }
}

TEST_F(ZarrFoldersTest, IsNotImpressedByDescriptionsThatAreNone) {
  const auto check = [this](const std::string& text) {
    write("heat/.zarray", text);
    write("new/zarr.json", text);
    chunk("heat/0.0", 200);
    chunk("new/c/0/0", 200);
  };
  for (const std::string_view whole : {kPlain2, kPlain3}) {
    for (size_t size = 0; size < whole.size(); ++size) {
      check(std::string(whole.substr(0, size)));
      std::string other(whole);
      other[size] = size % 2 == 0 ? '9' : '"';
      check(other);
    }
  }
  check(std::string(200'000, '['));
  check(std::string(1'000'000, ' '));
  std::string deep;
  for (int i = 0; i < 40'000; ++i) deep += R"({"a":)";
  check(deep);
}

TEST_F(ZarrFoldersTest, AreLookedAtByTheServiceUnlessItIsToldNotTo) {
  write("heat/.zarray", kPlain2);
  write("heat/0.0", std::string(200, 'x'));
  const auto service = LayoutService::start();
  ASSERT_TRUE(service.ok());
  const std::string path = (directory.path() / "heat/0.0").string();
  EXPECT_EQ((*service)->read(path, 200).layout.format, "zarr");
  EXPECT_EQ((*service)->read(path, 200, {.raw = {}, .sidecars = false}).layout.format, "raw");
}

}  // namespace
}  // namespace varve
