#include <gtest/gtest.h>

#include <numeric>

#include "codec/chooser.h"
#include "codec/opened.h"
#include "codec/test_packs.h"
#if VARVE_TEST_WITH_BLOSC
#include <blosc.h>
#endif

namespace varve {
namespace {

using test::Random;

Opened expect_frame_made_again(ByteSpan raw) {
  Opened opened = open_blosc(raw);
  const ByteSpan stage = opened.made_bytes == 0 ? raw : opened.bytes;
  EXPECT_LE(stage.size(), opened_bytes_max(raw.size()));
  EXPECT_EQ(std::accumulate(opened.sections.begin(), opened.sections.end(), uint64_t{0}), opened.bytes.size());
  for (size_t section = 0; section + 1 < opened.sections.size(); ++section)
    EXPECT_GE(opened.sections[section], kSectionBytesMin);
  ByteVector made(raw.size());
  const Status status = find_codec(CodecNumber::blosc).value()->decode(stage, opened.params, made);
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_TRUE(std::equal(raw.begin(), raw.end(), made.begin(), made.end()));
  return opened;
}

/// A frame of one block in one stream, whose lz4 has each byte as a literal.
ByteVector plain_frame(ByteSpan content) {
  ByteVector lz4;
  ByteWriter writer(lz4);
  writer.u8(content.size() < 15 ? static_cast<uint8_t>(16 * content.size()) : 240);
  size_t more = content.size() - std::min<size_t>(content.size(), 15);
  for (; content.size() >= 15 && more >= 255; more -= 255) writer.u8(255);
  if (content.size() >= 15) writer.u8(static_cast<uint8_t>(more));
  writer.bytes(content);
  ByteVector frame;
  ByteWriter out(frame);
  for (const int byte : {2, 1, 0x30, 1}) out.u8(static_cast<uint8_t>(byte));
  for (const size_t value : {content.size(), content.size(), 24 + lz4.size(), size_t{20}, lz4.size()})
    out.le32(static_cast<uint32_t>(value));
  out.bytes(lz4);
  return frame;
}

TEST(Blosc, MakesFramesAgainAndWhatLiesBetween) {
  Random random(70);
  for (const size_t bytes : {1, 14, 15, 16, 269, 270, 271, 1000}) {
    ByteVector raw = test::random_bytes(9, random);
    const ByteVector content = test::random_bytes(bytes, random), frame = plain_frame(content);
    test::append(raw, frame);
    test::append(raw, frame);
    test::append(raw, as_bytes("between"));
    test::append(raw, frame);
    const Opened opened = expect_frame_made_again(raw);
    EXPECT_EQ(opened.made_bytes, 3 * frame.size()) << bytes;
    for (size_t each = 0; each < 3; ++each)
      EXPECT_TRUE(
          std::equal(content.begin(), content.end(), opened.bytes.begin() + static_cast<ptrdiff_t>(each * bytes)));
  }
}

TEST(Blosc, LeavesWhatIsNoFrameAsItIs) {
  Random random(71);
  const ByteVector good = plain_frame(test::random_bytes(300, random));
  const auto expect_left = [&](const char* what, auto change) {
    ByteVector raw = good;
    change(raw);
    EXPECT_EQ(expect_frame_made_again(raw).made_bytes, 0u) << what;
  };
  expect_left("nothing", [](ByteVector& raw) { raw.clear(); });
  expect_left("its beginning alone", [](ByteVector& raw) { raw.resize(18); });
  expect_left("cut by a byte", [](ByteVector& raw) { raw.pop_back(); });
  const auto expect_left_with = [&](const char* what, size_t at, uint32_t value) {
    expect_left(what, [&](ByteVector& raw) { store_le(raw.data() + at, value); });
  };
  expect_left_with("another coder", 2, 0x50);
  expect_left_with("no element", 0, 0x00300102);
  expect_left_with("no content", 4, 0);
  expect_left_with("more content than its stream has", 4, 301);
  expect_left_with("a content of gigabytes", 4, UINT32_MAX);
  expect_left_with("no block", 8, 0);
  expect_left_with("blocks without end", 8, 1);
  expect_left_with("a block larger than all", 8, 400);
  expect_left_with("another size", 12, static_cast<uint32_t>(good.size() - 1));
  expect_left_with("a block elsewhere", 16, 21);
  expect_left_with("a stream that goes on behind the frame", 20, UINT32_MAX);
  expect_left("a match that reaches back too far", [](ByteVector& raw) {
    raw[24] = std::byte{0x10};
    store_le(raw.data() + 26, uint16_t{2});
  });
}

TEST(Blosc, DoesNotGoOnWithWhatOnlyBeginsLikeFrames) {
  ByteVector raw;
  ByteWriter out(raw);
  constexpr uint32_t frames = 20'000, content_bytes = 32 << 20;
  for (uint32_t frame = 0; frame < frames; ++frame) {
    out.bytes(as_bytes(std::string_view("\2\1\x30\1", 4)));
    for (const uint32_t value : {content_bytes, content_bytes, uint32_t{32}, uint32_t{20}, uint32_t{8}, 0U, 0U})
      out.le32(value);
  }
  raw.resize(4_MiB);
  EXPECT_EQ(expect_frame_made_again(raw).made_bytes, 0u);

  // Nor if some of them are frames.
  ByteVector mixed;
  const ByteVector good = plain_frame(ByteVector(1, std::byte{7}));
  for (uint32_t frame = 0; frame < frames; ++frame) {
    test::append(mixed, ByteSpan(raw).subspan(64, 32));
    store_le(mixed.data() + mixed.size() - 32 + 12, uint32_t{1 << 20});
    test::append(mixed, ByteSpan(raw).subspan(64, 32));
    test::append(mixed, good);
  }
  mixed.resize(mixed.size() + 1_MiB);
  expect_frame_made_again(mixed);
}

TEST(Blosc, SurvivesAnyDamage) {
  const uint64_t seed = 72;
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  const Codec* const codec = find_codec(CodecNumber::blosc).value();
  ByteVector raw;
  for (int frame = 0; frame < 5; ++frame)
    test::append(raw, plain_frame(test::random_bytes(1 + random() % 600, random)));
  for (int repeat = 0; repeat < 3000; ++repeat) {
    ByteVector hurt = raw;
    for (uint64_t flips = 1 + random() % 3; flips > 0; --flips)
      hurt[random() % hurt.size()] ^= static_cast<std::byte>(1 + random() % 255);
    Opened opened = expect_frame_made_again(hurt);
    // What is damaged on disk is refused, or gives other bytes of the same count.
    ByteVector& of = random() % 2 == 0 ? opened.params : opened.bytes;
    of[random() % of.size()] ^= static_cast<std::byte>(1 + random() % 255);
    if (random() % 8 == 0) of.resize(random() % (of.size() + 1));
    ByteVector out(hurt.size());
    const Status status = codec->decode(opened.bytes, opened.params, out);
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::corrupt) << status.to_string();
  }
}

TEST(BloscChain, MayGrowWhatItsStagesTakeIn) {
  ByteVector raw = plain_frame(ByteVector(100, std::byte{1}));
  const CodecChain chain = *CodecChain::parse("blosc+zstd");
  const EncodedBytes encoded = *encode_chain(chain, raw, {{}, {test::run_of(raw.size())}});
  EXPECT_EQ(*recipe_name(encoded.recipe), "blosc+zstd");
  ByteVector decoded(raw.size());
  ASSERT_TRUE(decode_chain(encoded.recipe, encoded.body, decoded).ok());
  EXPECT_EQ(decoded, raw);
}

#if VARVE_TEST_WITH_BLOSC
struct BloscSettings {
  const char* coder = "lz4";
  int level = 5, shuffle = BLOSC_SHUFFLE;
  size_t element_bytes = 8, block_bytes = 0;
};
ByteVector frame_by_library(ByteSpan content, const BloscSettings& settings = {}) {
  ByteVector frame(content.size() + BLOSC_MAX_OVERHEAD);
  const int bytes =
      blosc_compress_ctx(settings.level, settings.shuffle, settings.element_bytes, content.size(), content.data(),
                         frame.data(), frame.size(), settings.coder, settings.block_bytes, /*numinternalthreads=*/1);
  EXPECT_GT(bytes, 0);
  frame.resize(static_cast<size_t>(std::max(bytes, 0)));
  return frame;
}

TEST(BloscByItsLibrary, IsOpenedWhateverItsSettings) {
  const uint64_t seed = 73;
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  for (const char* coder : {"lz4", "lz4hc"}) {
    for (const int shuffle : {BLOSC_NOSHUFFLE, BLOSC_SHUFFLE, BLOSC_BITSHUFFLE}) {
      for (const size_t element_bytes : {1, 2, 4, 7, 8, 16, 17, 64}) {
        for (const size_t bytes : {3, 100, 5000, 131'072, 300'001}) {
          const BloscSettings settings{.coder = coder,
                                       .level = static_cast<int>(random() % 10),
                                       .shuffle = shuffle,
                                       .element_bytes = element_bytes,
                                       .block_bytes = random() % 3 == 0 ? size_t{16'384} : 0};
          SCOPED_TRACE(std::string(coder) + " level " + std::to_string(settings.level) + " shuffle " +
                       std::to_string(shuffle) + " of " + std::to_string(element_bytes) + " bytes, " +
                       std::to_string(bytes));
          ByteVector content = test::smooth_bytes(test::kDoubles, bytes / 8 + 1, random);
          content.resize(bytes);
          const ByteVector frame = frame_by_library(content, settings);
          ByteVector raw = test::random_bytes(random() % 20, random);
          test::append(raw, frame);
          const Opened opened = expect_frame_made_again(raw);
          EXPECT_EQ(opened.made_bytes, frame.size());
          if (shuffle == BLOSC_BITSHUFFLE) continue;  // is opened, but stays in planes
          EXPECT_TRUE(std::equal(content.begin(), content.end(), opened.bytes.begin()));
        }
      }
    }
  }
}

TEST(BloscByItsLibrary, IsOpenedWhereItDoesNotLookLikeNoise) {
  Random random(76);
  ByteVector raw;
  for (int chunk = 0; chunk < 8; ++chunk) {
    ByteVector walk(256_KiB);
    uint32_t value = 1'000'000;
    for (size_t at = 0; at < walk.size(); at += 4) {
      value += static_cast<uint32_t>(random() % 15) - 7;
      store_le(walk.data() + at, value);
    }
    test::append(raw, frame_by_library(walk, {.element_bytes = 4}));
  }
  EXPECT_FALSE(may_be_compressed(raw));
  EXPECT_TRUE(begins_with_blosc(raw));
  const EncodedBytes encoded = *make_encoder({})->encode(raw, {{}, {test::run_of(raw.size())}});
  EXPECT_TRUE(recipe_name(encoded.recipe)->starts_with("blosc")) << *recipe_name(encoded.recipe);
}

TEST(BloscByItsLibrary, OfOtherCodersStaysAsItIs) {
  Random random(74);
  for (const char* coder : {"blosclz", "zlib", "zstd"}) {
    if (blosc_compname_to_compcode(coder) < 0) continue;
    const ByteVector frame = frame_by_library(test::smooth_bytes(test::kDoubles, 10'000, random), {.coder = coder});
    EXPECT_EQ(expect_frame_made_again(frame).made_bytes, 0u) << coder;
  }
}

TEST(BloscByItsLibrary, TakesAsMuchAsWhatItHoldsAndAFewHundredths) {
  Random random(75);
  ByteVector raw, contents;
  for (int chunk = 0; chunk < 16; ++chunk) {
    const ByteVector content = test::smooth_bytes(test::kDoubles, 16'384, random);
    test::append(contents, content);
    test::append(raw, frame_by_library(content));
  }
  const PackShape shape{{}, {test::run_of(raw.size())}};
  for (const Effort effort : {Effort::balanced, Effort::best}) {
    const CodecPolicy policy{.effort = effort, .chain = {}};
    const EncodedBytes of_frames = *make_encoder(policy)->encode(raw, shape);
    const EncodedBytes of_contents = *make_encoder(policy)->encode(contents, {{}, {test::run_of(contents.size())}});
    EXPECT_TRUE(recipe_name(of_frames.recipe)->starts_with("blosc")) << *recipe_name(of_frames.recipe);
    EXPECT_LT(of_frames.body.size(), of_contents.body.size() + raw.size() / 20);
    ByteVector decoded(raw.size());
    ASSERT_TRUE(decode_chain(of_frames.recipe, of_frames.body, decoded).ok());
    EXPECT_EQ(decoded, raw);

    const CodecPolicy waiting{.effort = effort, .chain = {}, .opens_compressed = false};
    EXPECT_FALSE(recipe_name(make_encoder(waiting)->encode(raw, shape)->recipe)->starts_with("blosc"));
  }
  const EncodedBytes fast = *make_encoder({.effort = Effort::fast, .chain = {}})->encode(raw, shape);
  EXPECT_FALSE(recipe_name(fast.recipe)->starts_with("blosc"));

  raw.resize(raw.size() - 1);
  EXPECT_TRUE(ends_in_blosc(raw));
  EXPECT_FALSE(ends_in_blosc(contents));
}
#endif

}  // namespace
}  // namespace varve
