#include <gtest/gtest.h>

#include "codec/chooser.h"
#include "codec/deflated.h"
#include "codec/opened.h"
#include "codec/test_deflate.h"
#include "codec/test_packs.h"

namespace varve {
namespace {

using test::Random;

/// As HDF5 chunks and MATLAB's elements are; what follows the stream would be its checksum.
ByteVector zlib_stream(ByteSpan content, DeflateSettings settings = {}) {
  const char flags = settings.level == 1 ? '\x01' : settings.level < 6 ? '\x5e' : settings.level == 6 ? '\x9c' : '\xda';
  ByteVector bytes = {std::byte{0x78}, static_cast<std::byte>(flags)};
  test::append(bytes, test::deflated(content, settings));
  test::append(bytes, as_bytes("adlr"));
  return bytes;
}
ByteVector gzip_file(ByteSpan content, DeflateSettings settings = {}) {
  ByteVector bytes;
  test::append(bytes, as_bytes(std::string_view("\x1f\x8b\x08\x08....\0\x03name\0", 15)));
  test::append(bytes, test::deflated(content, settings));
  test::append(bytes, as_bytes("crc-size"));
  return bytes;
}
ByteVector zip_member(ByteSpan content, DeflateSettings settings = {}) {
  ByteVector bytes(30);
  std::copy_n(as_bytes(std::string_view("PK\3\4\x14\0\0\0\x08\0", 10)).begin(), 10, bytes.begin());
  bytes[26] = std::byte{5};
  test::append(bytes, as_bytes("h.npy"));
  test::append(bytes, test::deflated(content, settings));
  return bytes;
}

Inflation expect_made_again(ByteSpan raw) {
  Inflation inflation = inflate_streams(raw);
  EXPECT_LE(inflation.bytes.size(), opened_bytes_max(raw.size()));
  ByteVector params;
  ByteWriter writer(params);
  write_deflated_table(writer, inflation.table);
  const Codec* const codec = find_codec(CodecNumber::inflate).value();
  ByteVector made(raw.size());
  const ByteSpan stage = inflation.table.streams.empty() ? raw : inflation.bytes;
  const Status status = codec->decode(stage, params, made);
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_TRUE(std::equal(raw.begin(), raw.end(), made.begin(), made.end()));
  return inflation;
}

TEST(Inflate, OpensStreamsOfZlibGzipAndZipWhateverTheirSettings) {
  const uint64_t seed = 50;
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  const ByteVector content = test::smooth_bytes(test::kDoubles, 12'000, random);
  for (uint8_t level = 1; level <= 9; ++level) {
    for (const uint8_t memory_level : {uint8_t{8}, uint8_t{9}, uint8_t{1}, uint8_t{5}}) {
      SCOPED_TRACE("level " + std::to_string(level) + " memory level " + std::to_string(memory_level));
      ByteVector raw = test::random_bytes(100, random);
      test::append(raw, zlib_stream(content, {level, memory_level}));
      test::append(raw, gzip_file(content, {level, memory_level}));
      test::append(raw, zip_member(content, {level, memory_level}));
      const Inflation inflation = expect_made_again(raw);
      ASSERT_EQ(inflation.table.streams.size(), 3u);
      EXPECT_EQ(inflation.table.content_bytes(), 3 * content.size());
      EXPECT_LT(raw.size() - inflation.table.made_bytes(), 300u);
    }
  }
}

TEST(Inflate, PutsContentsFirstAndThenWhatLiesBetween) {
  Random random(51);
  const ByteVector first = test::smooth_bytes(test::kDoubles, 3000, random),
                   second = test::smooth_bytes(test::kDoubles, 5000, random);
  ByteVector raw;
  test::append(raw, as_bytes("header"));
  test::append(raw, zlib_stream(first));
  test::append(raw, zlib_stream(second));
  ByteVector expected = first;
  test::append(expected, second);
  test::append(expected, as_bytes("header\x78\x9c"
                                  "adlr\x78\x9c"
                                  "adlr"));
  EXPECT_EQ(expect_made_again(raw).bytes, expected);
}

TEST(Inflate, OpensStreamsWithoutHeadersInFrontAndBehindEachOther) {
  Random random(61);
  const ByteVector content = test::smooth_bytes(test::kDoubles, 10'000, random);
  ByteVector raw = test::deflated(content);
  test::append(raw, test::deflated(content, {9, 8}));
  test::append(raw, zlib_stream(content));
  EXPECT_EQ(expect_made_again(raw).table.streams.size(), 3u);
}

TEST(Inflate, UndoesTheShuffleOfHdf5) {
  Random random(52);
  for (const uint32_t bytes : {2U, 4U, 8U}) {
    const ElementType type{bytes == 2 ? ElementKind::signed_integer : ElementKind::floating, ByteOrder::little, bytes};
    ByteVector content = test::smooth_bytes(type, 10'000, random);
    content.push_back(std::byte{7});  // which is no whole number
    ByteVector params, planes;
    ASSERT_TRUE(find_codec(CodecNumber::shuffle)
                    .value()
                    ->encode(content, {type, {}}, static_cast<int>(bytes), params, planes)
                    .ok());
    const ByteVector raw = zlib_stream(planes);
    const Inflation inflation = expect_made_again(raw);
    ASSERT_EQ(inflation.table.streams.size(), 1u);
    EXPECT_EQ(inflation.table.streams[0].element_bytes, bytes);
    EXPECT_TRUE(std::equal(content.begin(), content.end(), inflation.bytes.begin()));
    // And leaves alone what is no planes.
    EXPECT_EQ(expect_made_again(zlib_stream(content)).table.streams.at(0).element_bytes, 1u);
  }
}

TEST(Inflate, OpensAStreamThatIsCutAsFarAsItGoes) {
  Random random(53);
  const ByteVector content = test::smooth_bytes(test::kDoubles, 100'000, random);
  const ByteVector whole = zlib_stream(content);
  const ByteSpan raw = ByteSpan(whole).first(whole.size() * 3 / 4);
  const Inflation inflation = expect_made_again(raw);
  ASSERT_EQ(inflation.table.streams.size(), 1u);
  EXPECT_GT(inflation.table.made_bytes(), raw.size() - 64_KiB);
  // What of the content is only needed to know how it goes on is little.
  EXPECT_LT(inflation.table.content_bytes(), content.size() * 3 / 4);
}

TEST(Inflate, OpensAStreamWithAChangeInTheMiddleUpToIt) {
  Random random(54);
  ByteVector raw = zlib_stream(test::smooth_bytes(test::kDoubles, 100'000, random));
  raw[raw.size() * 3 / 4] ^= std::byte{4};
  expect_made_again(raw);
}

TEST(Inflate, LeavesAloneWhatZlibDoesNotMake) {
  Random random(55);
  const ByteVector content = test::smooth_bytes(test::kDoubles, 50'000, random);
  const Codec* const gzip = find_codec(CodecNumber::gzip).value();  // another library's
  ByteVector params, raw;
  for (int file = 0; file < 10; ++file) ASSERT_TRUE(gzip->encode(content, {}, 6, params, raw).ok());
  const Inflation inflation = expect_made_again(raw);
  EXPECT_TRUE(inflation.table.streams.empty());
  EXPECT_TRUE(inflation.bytes.empty());
  ByteVector stage;
  params.clear();
  ASSERT_TRUE(find_codec(CodecNumber::inflate).value()->encode(raw, {}, 0, params, stage).ok());
  EXPECT_EQ(stage, raw);
}

TEST(Inflate, MakesNoMoreOfABombThanItsLimit) {
  const ByteVector zeros(40_MiB);
  const ByteVector raw = zlib_stream(zeros);
  ASSERT_LT(opened_bytes_max(raw.size()), zeros.size());
  expect_made_again(raw);
}

TEST(Inflate, MakesAnyBytesAgain) {
  const uint64_t seed = 56;
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  for (int repeat = 0; repeat < 60; ++repeat) {
    ByteVector raw;
    for (uint64_t part = random() % 6; part > 0; --part) {
      const ByteVector content = test::smooth_bytes(test::kDoubles, random() % 6000, random);
      const DeflateSettings settings{static_cast<uint8_t>(1 + random() % 9), static_cast<uint8_t>(1 + random() % 9)};
      switch (random() % 4) {
        case 0: test::append(raw, zlib_stream(content, settings)); break;
        case 1: test::append(raw, gzip_file(content, settings)); break;
        case 2: test::append(raw, zip_member(content, settings)); break;
        default: test::append(raw, test::random_bytes(random() % 3000, random));
      }
    }
    for (uint64_t flips = raw.empty() ? 0 : random() % 3; flips > 0; --flips)
      raw[random() % raw.size()] ^= std::byte{16};
    if (!raw.empty()) raw.resize(raw.size() - random() % raw.size() / 2);
    expect_made_again(raw);
  }
}

/// The table, as it is written, with a stream that holds 1000 zeros, between 5 bytes and 3.
struct InflateTable : testing::Test {
  DeflatedTable table;
  ByteVector content = ByteVector(20'000, std::byte{1}), in, out;
  InflateTable() {
    Random random(57);
    content = test::random_bytes(2000, random);
    const size_t made_bytes = test::deflated(content).size();
    table.streams = {{.gap_bytes = 5, .made_bytes = made_bytes, .content_bytes = content.size(), .settings = {}}};
    in = content;
    in.resize(in.size() + 8);
    out.resize(made_bytes + 8);
  }
  Status decode() {
    ByteVector params;
    ByteWriter writer(params);
    write_deflated_table(writer, table);
    return find_codec(CodecNumber::inflate).value()->decode(in, params, out);
  }
};

TEST_F(InflateTable, IsRefusedIfItSaysWhatCannotBe) {
  ASSERT_TRUE(decode().ok());
  const DeflatedTable good = table;
  const auto expect_refused = [&](const char* what, auto change) {
    table = good;
    change(table.streams[0]);
    EXPECT_EQ(decode().code(), StatusCode::corrupt) << what;
  };
  using Stream = DeflatedStream;
  expect_refused("another gap", [](Stream& stream) { stream.gap_bytes = 9; });
  expect_refused("a gap of everything", [](Stream& stream) { stream.gap_bytes = UINT64_MAX; });
  expect_refused("more than is made", [](Stream& stream) { ++stream.made_bytes; });
  expect_refused("no stream", [](Stream& stream) { stream.made_bytes = 0; });
  expect_refused("a content beyond the stage", [](Stream& stream) { stream.content_bytes += 9; });
  expect_refused("an overflow", [](Stream& stream) { stream.content_bytes = UINT64_MAX; });
  expect_refused("no level", [](Stream& stream) { stream.settings.level = 0; });
  expect_refused("a level of ten", [](Stream& stream) { stream.settings.level = 10; });
  expect_refused("no memory level", [](Stream& stream) { stream.settings.memory_level = 0; });
  expect_refused("a memory level of ten", [](Stream& stream) { stream.settings.memory_level = 10; });
  expect_refused("no element", [](Stream& stream) { stream.element_bytes = 0; });
  expect_refused("a second stream that is not there", [&](Stream& stream) { table.streams.push_back(stream); });
}

TEST(Inflate, DoesNotGoOnWithWhatOnlyBeginsLikeStreams) {
  // Headers, each of a stored block that reaches over the others to what gives very much, and then no block.
  constexpr size_t headers = 400, header_bytes = 7;
  ByteVector bomb = test::deflated(ByteVector(24_MiB), {1, 9});
  ByteVector raw;
  ByteWriter out(raw);
  for (size_t header = 0; header < headers; ++header) {
    const auto bytes = static_cast<uint16_t>((headers - header - 1) * header_bytes);
    out.bytes(as_bytes(std::string_view("\x78\x01\0", 3)));
    out.le16(bytes);
    out.le16(static_cast<uint16_t>(~bytes));
  }
  bomb[0] &= ~std::byte{1};  // not the last block
  bomb.resize(bomb.size() - 8);
  out.bytes(bomb);
  raw.resize(1_MiB, std::byte{0xff});
  expect_made_again(raw);
  ends_in_deflated(raw);
}

TEST(InflateChain, MayGrowWhatItsStagesTakeInButWithinALimit) {
  ByteVector body(4), raw(4);
  const auto recipe_of = [](std::initializer_list<std::pair<CodecNumber, uint64_t>> stages) {
    ByteVector recipe;
    ByteWriter writer(recipe);
    writer.u8(static_cast<uint8_t>(stages.size()));
    for (const auto& [number, in_bytes] : stages) {
      writer.varint(static_cast<uint32_t>(number));
      writer.varint(in_bytes);
      writer.varint(0);
    }
    return recipe;
  };
  const auto too_large = [&](std::initializer_list<std::pair<CodecNumber, uint64_t>> stages) {
    return decode_chain(recipe_of(stages), body, raw).to_string().find("too large for its pack") != std::string::npos;
  };
  using enum CodecNumber;
  const uint64_t most = opened_bytes_max(4);
  EXPECT_FALSE(too_large({{inflate, 4}, {zstd, most}}));
  EXPECT_TRUE(too_large({{inflate, 4}, {zstd, most + 1}}));
  EXPECT_FALSE(too_large({{inflate, 4}, {rotate, most}, {zstd, 2 * most + 64_KiB}}));
  EXPECT_TRUE(too_large({{inflate, 4}, {rotate, most}, {zstd, 2 * most + 64_KiB + 1}}));
  EXPECT_TRUE(too_large({{inflate, 4}, {inflate, most}, {zstd, opened_bytes_max(most)}}));
  EXPECT_TRUE(too_large({{zstd, 4}, {zstd, most + 64_KiB}}));
  EXPECT_EQ(opened_bytes_max(kPackBytesMax), kPackBytesMax);
}

TEST(InflateChoice, IsMadeWhereProgramsDeflatedWhatIsPredicted) {
  Random random(58);
  ByteVector raw;
  size_t content_bytes = 0;
  for (int chunk = 0; chunk < 8; ++chunk) {
    const ByteVector content = test::smooth_bytes(test::kDoubles, 16'384, random);
    content_bytes += content.size();
    test::append(raw, zlib_stream(content, {4, 8}));
  }
  const PackShape shape{{}, {test::run_of(raw.size())}};
  for (const Effort effort : {Effort::balanced, Effort::best}) {
    const EncodedBytes opened = *make_encoder({.effort = effort, .chain = {}})->encode(raw, shape);
    EXPECT_TRUE(recipe_name(opened.recipe)->starts_with("inflate+")) << *recipe_name(opened.recipe);
    EXPECT_LT(size_of(opened), raw.size() * 9 / 10);
    ByteVector decoded(raw.size());
    ASSERT_TRUE(decode_chain(opened.recipe, opened.body, decoded).ok());
    EXPECT_EQ(decoded, raw);
    const CodecPolicy waiting{.effort = effort, .chain = {}, .opens_compressed = false};
    EXPECT_FALSE(recipe_name(make_encoder(waiting)->encode(raw, shape)->recipe)->starts_with("inflate"));
  }
  const EncodedBytes fast = *make_encoder({.effort = Effort::fast, .chain = {}})->encode(raw, shape);
  EXPECT_FALSE(recipe_name(fast.recipe)->starts_with("inflate"));
}

TEST(InflateChoice, EncodesEachKindOfContentByItself) {
  Random random(60);
  ByteVector raw;
  for (const uint32_t bytes : {4U, 8U, 2U}) {
    const ElementType type{bytes == 2 ? ElementKind::signed_integer : ElementKind::floating, ByteOrder::little, bytes};
    test::append(raw, zip_member(test::smooth_bytes(type, 400'000 / bytes, random), {1, 8}));
  }
  const Inflation inflation = inflate_streams(raw);
  EXPECT_EQ(open_deflated(raw).sections.size(), 3u);
  const EncodedBytes encoded = *make_encoder({})->encode(raw, {{}, {test::run_of(raw.size())}});
  EXPECT_EQ(*recipe_name(encoded.recipe), "inflate+sections");
  ByteVector decoded(raw.size());
  ASSERT_TRUE(decode_chain(encoded.recipe, encoded.body, decoded).ok());
  EXPECT_EQ(decoded, raw);
}

TEST(InflateChoice, MakesWhateverItTakesAgain) {
  const uint64_t seed = 61;
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  const auto smooth = [&](uint64_t bytes) {
    const ElementType type =
        random() % 2 == 0 ? test::kDoubles : ElementType{ElementKind::floating, ByteOrder::little, 4};
    return test::smooth_bytes(type, bytes / type.bytes, random);
  };
  for (int repeat = 0; repeat < 12; ++repeat) {
    SCOPED_TRACE("repeat " + std::to_string(repeat));
    ByteVector raw;
    if (repeat == 0) {
      for (const uint64_t bytes : {300'000, 20'000}) test::append(raw, zlib_stream(smooth(bytes)));
      test::append(raw, smooth(300'000));
    }
    while (raw.size() < 600'000 && repeat > 0) {
      const uint64_t bytes = 8 + random() % (uint64_t{1} << (random() % 20));
      test::append(raw, random() % 4 == 0 ? smooth(bytes) : zlib_stream(smooth(bytes)));
    }
    const std::vector<uint64_t> sections = open_deflated(raw).sections;
    EXPECT_TRUE(std::all_of(sections.begin(), std::prev(sections.end()),
                            [](uint64_t bytes) { return bytes >= kSectionBytesMin; }));
    const EncodedBytes encoded = *make_encoder({})->encode(raw, {{}, {test::run_of(raw.size())}});
    ByteVector decoded(raw.size());
    ASSERT_TRUE(decode_chain(encoded.recipe, encoded.body, decoded).ok());
    EXPECT_EQ(decoded, raw);
  }
}

TEST(Sections, OfSectionsAreRefusedAndSoAreShortOnes) {
  const ByteVector raw(100'000, std::byte{7});
  const PackShape shape{{}, {test::run_of(raw.size())}};
  const auto zstd = [&] { return *encode_chain(*CodecChain::parse("zstd"), raw, shape); };
  ByteVector decoded(2 * raw.size());
  const EncodedBytes two = joined({{raw.size(), zstd()}, {raw.size(), zstd()}});
  ASSERT_TRUE(decode_chain(two.recipe, two.body, decoded).ok());
  EXPECT_EQ(ByteVector(decoded.begin() + 100'000, decoded.end()), raw);
  const EncodedBytes nested = joined({{decoded.size(), two}});
  EXPECT_EQ(decode_chain(nested.recipe, nested.body, decoded).code(), StatusCode::corrupt);
  const EncodedBytes stored{.recipe = {std::byte{0}}, .body = ByteVector(1000)};
  const EncodedBytes short_ones = joined({{1000, stored}, {1000, stored}, {1000, stored}});
  decoded.resize(3000);
  EXPECT_EQ(decode_chain(short_ones.recipe, short_ones.body, decoded).code(), StatusCode::corrupt);
  // As the first versions wrote them.
  const EncodedBytes short_before_the_last = joined({{raw.size(), zstd()}, {1000, stored}, {raw.size(), zstd()}});
  decoded.assign(2 * raw.size() + 1000, std::byte{1});
  ASSERT_TRUE(decode_chain(short_before_the_last.recipe, short_before_the_last.body, decoded).ok());
  EXPECT_EQ(decoded[100'500], std::byte{0});
  EXPECT_EQ(decoded.back(), std::byte{7});
}

TEST(InflateChoice, IsNotMadeForNoiseOrNumbers) {
  Random random(59);
  EXPECT_FALSE(may_be_compressed(test::smooth_bytes({ElementKind::floating, ByteOrder::little, 4}, 100'000, random)));
  EXPECT_FALSE(may_be_compressed(ByteVector(100'000)));
  EXPECT_TRUE(may_be_compressed(test::random_bytes(100'000, random)));
  const ByteVector raw = test::random_bytes(1_MiB, random);
  EXPECT_TRUE(inflate_streams(raw).table.streams.empty());
  EXPECT_TRUE(recipe_is_store(make_encoder({})->encode(raw, {{}, {test::run_of(raw.size())}})->recipe));
}

}  // namespace
}  // namespace varve
