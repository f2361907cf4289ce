// What was written must be readable for ever: bytes that must not change, and what other programs make of ours.
#include <gtest/gtest.h>

#ifdef VARVE_TEST_WITH_FPZIP
#include <fpzip.h>
#endif

#include <array>
#include <limits>

#include "codec/test_packs.h"

namespace varve {
namespace {

ByteVector bytes_of_hex(std::string_view hex) {
  ByteVector bytes;
  std::string digits(hex);
  std::erase(digits, ' ');
  for (size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

template <class T>
ByteVector bytes_of(std::initializer_list<T> values) {
  ByteVector bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.begin(), bytes.size());
  return bytes;
}

/// The codec writes exactly these parameters and this body, and reads them back.
void expect_bytes(std::string_view name, const PackShape& shape, const ByteVector& raw, std::string_view params_hex,
                  std::string_view body_hex) {
  const CodecChain::Stage stage = CodecChain::parse(name)->stages().front();
  const ByteVector params = bytes_of_hex(params_hex), body = bytes_of_hex(body_hex);
  ByteVector params_out, out;
  ASSERT_TRUE(stage.codec->encode(raw, shape, stage.level, params_out, out).ok());
  EXPECT_EQ(to_hex(params_out), to_hex(params)) << name;
  EXPECT_EQ(to_hex(out), to_hex(body)) << name;
  ByteVector decoded(raw.size());
  ASSERT_TRUE(stage.codec->decode(body, params, decoded).ok()) << name;
  EXPECT_EQ(decoded, raw) << name;
}

constexpr ElementType kFloat{ElementKind::floating, ByteOrder::little, 4};
constexpr ElementType kBigFloat{ElementKind::floating, ByteOrder::big, 4};
constexpr ElementType kDouble{ElementKind::floating, ByteOrder::little, 8};
/// Of 1.0, 1.5 and -2.0, which come out as the same body from either byte order.
void expect_bytes_of_floats(std::string_view name, std::string_view body_hex) {
  expect_bytes(name, {kFloat, {test::run_of(3)}}, bytes_of<float>({1.0F, 1.5F, -2.0F}), "0a0b03", body_hex);
  expect_bytes(name, {kBigFloat, {test::run_of(3)}}, bytes_of_hex("3f8000003fc00000c0000000"), "0e0b03", body_hex);
}

constexpr ElementType kShort{ElementKind::signed_integer, ByteOrder::little, 2};

TEST(CodecFormat, OfLorenzo) {
  // 3 x + 5 y on 8 × 8: along x 0, then 3 in each row and -16 at each row's start; eight back 0, seven 3, -16, and
  // zeros.
  ByteVector plane;
  for (int16_t i = 0; i < 64; ++i) {
    const ByteVector value = bytes_of({static_cast<int16_t>(3 * (i % 8) + 5 * (i / 8))});
    plane.insert(plane.end(), value.begin(), value.end());
  }
  std::string body = "0000";
  for (int i = 0; i < 7; ++i) body += "0600";
  body += "1f00" + std::string(4 * 55, '0');
  expect_bytes("lorenzo", {kShort, {test::run_of(64, {8, 8})}}, plane, "010d0808", body);

  // Short runs are joined; a tail that is no whole element stays as it is.
  ByteVector row = bytes_of<int16_t>({10, 12, 15, 11});
  row.push_back(std::byte{0xab});
  expect_bytes("lorenzo:1", {kShort, {test::run_of(2), test::run_of(2)}}, row, "110b04", "140004000600 0700ab");
}

TEST(CodecFormat, OfFloatsWithTheirSignLast) {
  // 1.0, 1.5, -2.0 are 7f000000, 7f800000, 80000001 then.
  expect_bytes_of_floats("signlast", "000000fe 00000001 02000001");
  expect_bytes("signlast:1", {kBigFloat, {test::run_of(3)}}, bytes_of_hex("3f8000003fc00000c0000000"), "1e0b03",
               "000000fe 00000001 02000001");
}

TEST(CodecFormat, RefusesIntegersWithTheirSignLast) {
  const ByteVector encoded = bytes_of_hex("0000000000000000");
  ByteVector decoded(encoded.size());
  const Codec& codec = **find_codec("signlast");
  EXPECT_TRUE(codec.decode(encoded, bytes_of_hex("0a0b02"), decoded).ok());
  EXPECT_EQ(codec.decode(encoded, bytes_of_hex("020b02"), decoded).code(), StatusCode::corrupt);
}

TEST(CodecFormat, OfLorenzoOnFloats) {
  // 1.0, 1.5, -2.0 are bf800000, bfc00000, 3fffffff in value order.
  expect_bytes_of_floats("lorenzo", "ffffff80 00008000 010080ff");
}

TEST(CodecFormat, OfAcross) {
  // The second part as differences from the first, the third as ones from the second.
  PackShape shape{kFloat, {test::run_of(3), test::run_of(3), test::run_of(3)}, {{3, {}}, {3, 0}, {3, 1}}};
  ByteVector raw = bytes_of<float>({1.0F, 1.5F, 3.0F, 2.0F, 3.0F, 7.0F});
  const ByteVector next_larger = bytes_of_hex("01000040 01004040 0100e040");
  raw.insert(raw.end(), next_larger.begin(), next_larger.end());
  expect_bytes("across", shape, raw, "0a03 03000b03 0302000b03 0302010b03",
               "ffffff80 00008000 00000001 00000001 00000000 00004000 02000000 00000000 00000000");

  // Five fourths of the first, by its quotients.
  ByteVector first, second;
  std::string body = "ffffff80 0000c000";
  for (int i = 0; i < 16; ++i) {
    const ByteVector one = bytes_of<float>({i % 2 == 0 ? 1.0F : 1.75F}),
                     other = bytes_of<float>({i % 2 == 0 ? 1.25F : 2.1875F});
    first.insert(first.end(), one.begin(), one.end());
    second.insert(second.end(), other.begin(), other.end());
    if (i > 1) body += i % 2 == 0 ? "ffffbf00" : "0000c000";
  }
  for (int i = 0; i < 8; ++i) body += "00004000 00000000";
  first.insert(first.end(), second.begin(), second.end());
  expect_bytes("across", {kFloat, {test::run_of(16), test::run_of(16)}, {{16, {}}, {16, 0}}}, first,
               "0a02 10000b10 100100", body);
}

TEST(CodecFormat, OfDelta) {
  expect_bytes("delta", {kShort, {test::run_of(4)}}, bytes_of<int16_t>({10, 12, 15, 11}), "0101", "1400040006000700");
  expect_bytes("delta:2", {{}, {test::run_of(5)}}, bytes_of_hex("0100030009"), "0101", "0200040009");
}

TEST(CodecFormat, OfRotate) {
  expect_bytes("rotate:3", {{}, {test::run_of(5)}}, bytes_of_hex("0102030405"), "03", "0405010203");
  expect_bytes("rotate:9", {{}, {test::run_of(2)}}, bytes_of_hex("0102"), "02", "0102");
}

TEST(CodecFormat, OfColumns) {
  // Sixteen lines "1 -2.5" and "10 3" in turns, with a blank behind the second, between a header and half a line.
  std::string text = "x y\n", first, second, third, blanks, trailing;
  for (int i = 0; i < 16; ++i) text += i % 2 == 0 ? "1 -2.5\n" : "10 3 \n";
  text += "7 ";
  const auto turns = [](std::string_view even, std::string_view odd) {
    std::string all;
    for (int i = 0; i < 16; ++i) all += i % 2 == 0 ? even : odd;
    return all;
  };
  const std::string zeros = turns("00", "00"), ones = turns("01", "01");
  // All lines have two words, the header too: 17 lines, of which that is the first.
  const std::string first_column = "00" + zeros + "78" + turns("31", "31") + "20" + turns("20", "30");
  const std::string second_column = "01" + ones + "79" + turns("2d", "33") + "20" + turns("32", "20") + "20" +
                                    turns("2e", "20") + "20" + turns("35", "20");
  const std::string behind = "00" + turns("00", "01");
  const ByteSpan raw = as_bytes(text);
  expect_bytes("columns", {{}, {test::run_of(text.size())}}, ByteVector(raw.begin(), raw.end()), "",
               "02 0211 0204 0002" + first_column + second_column + behind + "3720");
}

TEST(CodecFormat, OfShuffleAndBitShuffle) {
  const ByteVector raw = bytes_of_hex("0001020310111213aa");
  expect_bytes("shuffle", {kFloat, {test::run_of(2)}}, raw, "04", "0010011102120313aa");
  expect_bytes("bitshuffle:1", {{}, {test::run_of(9)}}, bytes_of_hex("0102030405060780ff"), "01",
               "55667800 00000080ff");
}

TEST(CodecFormat, OfPlanes) {
  ByteVector raw = bytes_of<int16_t>({0, 6, 6, 6, 6, 6, 6, 6, 31, 6, 6, 6, 6, 6, 6, 6, 7});
  raw.push_back(std::byte{0xab});
  expect_bytes("planes", {kShort, {test::run_of(17)}}, raw, "0102", "0305 00fefe 01ffff0101 0700ab");
}

TEST(CodecFormat, OfPlanesWithCompressedWidthsStaysReadable) {
  // 100 groups of eight bytes: the last has a one, the others are zero.
  ByteVector expected(800), decoded(800);
  expected[799] = std::byte{1};
  const Status status =
      (*find_codec("planes"))
          ->decode(bytes_of_hex("28b52ffd20644d00001800000101003e012c 80"), bytes_of_hex("0412"), decoded);
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(decoded, expected);
}

TEST(CodecFormat, OfMagnitudes) {
  ByteVector raw(32, std::byte{3});
  raw[5] = std::byte{201};
  raw[20] = std::byte{0};
  raw.push_back(std::byte{0xab});
  const auto times = [](int count, const std::string& text) {
    std::string all;
    for (int i = 0; i < count; ++i) all += text;
    return all;
  };
  const std::string usual = "f8870000";
  const std::string code = times(5, usual) + "901f1100" + times(10, usual);
  const std::string bits = times(20, "00") + "09000000" + times(8, "00") + times(5, "00") + "05" + times(2, "00");
  const std::string next_code = times(4, usual) + "08101100" + times(11, usual);
  expect_bytes("magnitudes", {{ElementKind::unsigned_integer, ByteOrder::little, 1}, {test::run_of(33)}}, raw,
               "00110e40284028", "0006a2ccfcd3ccb400004dcab90a" + code + bits + next_code + times(40, "00") + "ab");
}

TEST(CodecFormat, OfConstant) {
  expect_bytes("constant", {kDouble, {test::run_of(3)}}, bytes_of<double>({1.0, 1.0, 1.0}), "08", "000000000000f03f");
  expect_bytes("constant", {{}, {test::run_of(3)}}, bytes_of_hex("010203"), "00", "010203");
}

TEST(CodecFormat, OfFpc) {
  const auto infinity = std::numeric_limits<double>::infinity();
  const ByteVector raw = bytes_of<double>({1.0, 1.0, 1.0, 2.0, 3.0, 4.0, 5.0, 1e-300, infinity, -0.0, 1.0 + 0x1p-30});
  expect_bytes("fpc:10", {kDouble, {test::run_of(11)}}, raw, "0a",
               "0007f9090800 000000000000f03f000000000000f03f000000000000f07f0000000000001800"
               "00000000000c59f3f8c21f6ea50159f3f8c21f6e557e0000000000000080000040000000f87f");
}

TEST(CodecFormat, OfGzipIsThatOfGzip) {
  ByteVector decoded(5);
  const ByteVector member =
      bytes_of_hex("1f8b0800000000000003cb48cdc9c9070086a6103605000000");  // echo -n hello | gzip -n
  ASSERT_TRUE((*find_codec("gzip"))->decode(member, {}, decoded).ok());
  EXPECT_EQ(as_text(decoded), "hello");
}

TEST(CodecFormat, OfEveryCoderStaysReadable) {
  constexpr std::string_view text = "hello hello hello hello hello hello hello hello hello";
  const std::vector<std::array<std::string_view, 3>> written = {
      {"zstd", "", "28b52ffd20356500003068656c6c6f200100242a45"},
      {"lz4", "", "6f68656c6c6f200600175068656c6c6f"},
      {"gzip", "", "1f8b08000000000000ffcb48cdc9c957c8208d04004419cab935000000"},
      {"lzma", "0c", "e00034000c0300341a154118b8a2aba972000000"},
  };
  for (const auto& [name, params, body] : written) {
    if (!find_codec(name).ok()) continue;
    ByteVector decoded(text.size());
    const Status status = (*find_codec(name))->decode(bytes_of_hex(body), bytes_of_hex(params), decoded);
    EXPECT_TRUE(status.ok()) << name << ": " << status.to_string();
    EXPECT_EQ(as_text(decoded), text) << name;
  }
}

TEST(CodecFormat, OfFpzip) {
  expect_bytes("fpzip", {kFloat, {test::run_of(6)}}, bytes_of<float>({1.0F, 1.5F, 1.75F, 1.75F, -3.0F, 0.0F}), "0a0b06",
               "f42f0faf5ea0eb0198c2401dceb883aaf19a4a9cf6da0000");
}

TEST(CodecFormat, OfInflate) {
  // The example of FORMAT.md: too short for the encoder to open it.
  ByteVector raw = bytes_of_hex("3e20 cbcf4b5548cb2cce502829cf87308a5253208ca49c52881c00 2e"), decoded(raw.size());
  const Status status =
      (*find_codec("inflate"))
          ->decode(as_bytes("one fish two fish red fish blue fish> ."), bytes_of_hex("01 02 32 24 68 01"), decoded);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(to_hex(decoded), to_hex(raw));
}

TEST(CodecFormat, OfBlosc) {
  expect_bytes("blosc", {{}, {test::run_of(58)}},
               bytes_of_hex("3e20 02012001 24000000 24000000 37000000 14000000 1f000000 c2 6f6e65206669736820"
                            "74776f 0900 32 726564 0900 90 626c75652066697368 2e"),
               "0115030402",
               "6f6e6520666973682074776f20666973682072656420666973682062"
               "6c75652066697368"
               "3e20"
               "02012001240000002400000037000000"
               "0101"
               "2e"
               "c23290"
               "09000900");
}

#ifdef VARVE_TEST_WITH_FPZIP
TEST(CodecFormat, OfFpzipIsThatOfTheLibraryWithoutItsHeader) {
  test::Random random(1);
  for (const ElementType& type : {kFloat, kDouble}) {
    for (const std::vector<uint64_t>& dims : std::vector<std::vector<uint64_t>>{{999}, {40, 25}, {20, 9, 7}}) {
      uint64_t elements = 1;
      for (uint64_t dim : dims) elements *= dim;
      constexpr int fields = 3;
      const ByteVector raw = test::smooth_bytes(type, fields * elements, random);
      ByteVector params, ours, theirs(raw.size() * 2 + 1000);
      const PackShape shape{type, std::vector<varve::Run>(fields, test::run_of(elements, dims))};
      ASSERT_TRUE((*find_codec("fpzip"))->encode(raw, shape, 0, params, ours).ok());

      FPZ* stream = fpzip_write_to_buffer(theirs.data(), theirs.size());
      stream->type = type.bytes == 8 ? FPZIP_TYPE_DOUBLE : FPZIP_TYPE_FLOAT;
      stream->prec = 0;
      stream->nx = static_cast<int>(dims[0]);
      stream->ny = dims.size() > 1 ? static_cast<int>(dims[1]) : 1;
      stream->nz = dims.size() > 2 ? static_cast<int>(dims[2]) : 1;
      stream->nf = fields;
      theirs.resize(fpzip_write(stream, raw.data()));
      fpzip_write_close(stream);
      EXPECT_EQ(ours, theirs) << type.name() << " of dimensions: " << dims.size();
    }
  }
}
#endif

}  // namespace
}  // namespace varve
