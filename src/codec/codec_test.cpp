#include "codec/codec.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#if defined(__x86_64__)
#include <pmmintrin.h>
#endif

#include "codec/numbers.h"
#include "codec/test_packs.h"

namespace varve {
namespace {

using test::Pack;
using test::Random;

/// What every codec promises, whatever it is.
class CodecContract : public testing::TestWithParam<const Codec*> {
 protected:
  const Codec& codec() const { return *GetParam(); }

  /// Encodes behind some bytes that are there already and decodes, all at odd addresses.
  void expect_round_trip(const PackShape& shape, ByteSpan raw) const {
    ByteVector shifted(1);
    shifted.insert(shifted.end(), raw.begin(), raw.end());
    const ByteVector before(3, std::byte{42});
    ByteVector params, encoded = before;
    ASSERT_TRUE(codec().encode(ByteSpan(shifted).subspan(1), shape, 0, params, encoded).ok());
    ASSERT_TRUE(std::equal(before.begin(), before.end(), encoded.begin()));
    ByteVector decoded(raw.size() + 1, std::byte{1});
    const Status status = codec().decode(ByteSpan(encoded).subspan(3), params, MutableByteSpan(decoded).subspan(1));
    ASSERT_TRUE(status.ok()) << status.to_string();
    ASSERT_TRUE(std::equal(raw.begin(), raw.end(), decoded.begin() + 1));
  }
};

TEST_P(CodecContract, IsFoundByItsNameAndNumber) {
  EXPECT_EQ(*find_codec(codec().name()), &codec());
  EXPECT_EQ(*find_codec(codec().number()), &codec());
}

TEST_P(CodecContract, ReturnsWhatItTookForAllTypesAndShapes) {
  Random random(1);
  for (const ElementType& type : test::element_types()) {
    if (!codec().applies_to({type, {}})) continue;
    for (int repeat = 0; repeat < 40; ++repeat) {
      const Pack pack = test::random_pack(type, random);
      SCOPED_TRACE(type.name() + " #" + std::to_string(repeat));
      expect_round_trip(pack.shape, pack.raw);
    }
  }
}

#if defined(__x86_64__)
TEST_P(CodecContract, WritesAndReadsTheSameHoweverTheProgramHasItsFloatingPointUnit) {
  Random random(9);
  for (const ElementType& type : test::element_types()) {
    if (type.kind != ElementKind::floating || !codec().applies_to({type, {}})) continue;
    SCOPED_TRACE(type.name());
    // Between zero and the smallest normal numbers, and about them, where sums are denormal.
    ByteVector raw = test::random_bytes(size_t{3000} * type.bytes, random);
    for (size_t i = 0; i < raw.size(); i += type.bytes) {
      const size_t top = type.order == ByteOrder::big ? i : i + type.bytes - 1;
      const size_t next = type.order == ByteOrder::big ? i + 1 : i + type.bytes - 2;
      raw[top] &= std::byte{0x80};
      raw[next] &= type.bytes == 8 ? std::byte{0x3f} : std::byte{0xff};
    }
    const PackShape shape{type, {test::run_of(3000)}};
    ByteVector params, usual, other_params, other, back(raw.size()), other_back(raw.size());
    ASSERT_TRUE(codec().encode(raw, shape, 0, params, usual).ok());
    for (const unsigned rounding : {_MM_ROUND_UP, _MM_ROUND_DOWN}) {
      other_params.clear();
      other.clear();
      const unsigned before = _mm_getcsr();
      _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);
      _MM_SET_DENORMALS_ZERO_MODE(_MM_DENORMALS_ZERO_ON);
      _MM_SET_ROUNDING_MODE(rounding);
      const Status encoded = codec().encode(raw, shape, 0, other_params, other);
      const Status decoded = codec().decode(usual, params, other_back);
      _mm_setcsr(before);
      ASSERT_TRUE(encoded.ok() && decoded.ok()) << encoded.to_string() << decoded.to_string();
      EXPECT_TRUE(other == usual && other_params == params);
      EXPECT_EQ(other_back, raw);
    }
    ASSERT_TRUE(codec().decode(usual, params, back).ok());
    EXPECT_EQ(back, raw);
  }
}
#endif

TEST_P(CodecContract, TakesAnyLengthWhateverTheShapeSays) {
  Random random(2);
  for (const ElementType& type : test::element_types()) {
    if (!codec().applies_to({type, {}})) continue;
    for (size_t bytes = 0; bytes < 70; ++bytes) {
      SCOPED_TRACE(type.name() + " of bytes: " + std::to_string(bytes));
      expect_round_trip({type, test::random_runs(random)}, test::random_bytes(bytes, random));
    }
  }
}

TEST_P(CodecContract, RefusesDamagedBytesOrDecodesWithinBounds) {
  Random random(3);
  for (const ElementType& type : test::element_types()) {
    if (!codec().applies_to({type, {}})) continue;
    for (int repeat = 0; repeat < 30; ++repeat) {
      const Pack pack = test::random_pack(type, random);
      ByteVector params, encoded;
      ASSERT_TRUE(codec().encode(pack.raw, pack.shape, 0, params, encoded).ok());
      ByteVector& victim = !params.empty() && random() % 2 == 0 ? params : encoded;
      if (victim.empty()) continue;
      switch (random() % 3) {
        case 0: victim.resize(random() % victim.size()); break;
        case 1: victim[random() % victim.size()] ^= static_cast<std::byte>(1u << random() % 8); break;
        default: victim = test::random_bytes(random() % 64, random);
      }
      ByteVector decoded(random() % 2 == 0 ? pack.raw.size() : random() % 5000);
      codec().decode(encoded, params, decoded).ignore("either answer will do");
    }
  }
}

TEST_P(CodecContract, RefusesAnotherSizeThanWasEncoded) {
  Random random(4);
  const ElementType type{ElementKind::floating, ByteOrder::little, 8};
  const PackShape shape{type, {test::run_of(500)}};
  const ByteVector raw = test::random_bytes(4000, random);
  ByteVector params, encoded;
  ASSERT_TRUE(codec().encode(raw, shape, 0, params, encoded).ok());
  for (size_t bytes : {size_t{0}, raw.size() - 8, raw.size() + 8}) {
    ByteVector decoded(bytes);
    EXPECT_EQ(codec().decode(encoded, params, decoded).code(), StatusCode::corrupt) << bytes;
  }
}

INSTANTIATE_TEST_SUITE_P(AllCodecs, CodecContract, testing::ValuesIn(all_codecs()),
                         [](const auto& tested) { return std::string(tested.param->name()); });

TEST(CodecChain, EveryChainReturnsWhatItTook) {
  Random random(5);
  for (const std::string& name : test::chain_names()) {
    const Result<CodecChain> chain = CodecChain::parse(name);
    ASSERT_TRUE(chain.ok()) << chain.status().to_string();
    for (const ElementType& type : test::element_types()) {
      const Pack pack = test::random_pack(type, random);
      const Result<EncodedBytes> encoded = encode_chain(*chain, pack.raw, pack.shape);
      ASSERT_TRUE(encoded.ok()) << name << ": " << encoded.status().to_string();
      ASSERT_LE(encoded->recipe.size() + encoded->body.size(), pack.raw.size() + 1) << name;
      ByteVector decoded(pack.raw.size());
      const Status status = decode_chain(encoded->recipe, encoded->body, decoded);
      ASSERT_TRUE(status.ok()) << name << " " << type.name() << ": " << status.to_string();
      ASSERT_EQ(decoded, pack.raw) << name << " " << type.name();
    }
  }
}

TEST(CodecChain, RandomBytesOfAnySizeSurviveAnyChain) {
  rc::check([] {
    const std::string name = *rc::gen::elementOf(test::chain_names());
    const ElementType type = *rc::gen::elementOf(test::element_types());
    const auto bytes = *rc::gen::arbitrary<std::vector<uint8_t>>();
    const ByteSpan raw = std::as_bytes(std::span(bytes));
    const Result<EncodedBytes> encoded =
        encode_chain(*CodecChain::parse(name), raw, {type, {test::run_of(bytes.size() / type.bytes)}});
    RC_ASSERT(encoded.ok());
    ByteVector decoded(raw.size());
    RC_ASSERT(decode_chain(encoded->recipe, encoded->body, decoded).ok());
    RC_ASSERT(std::equal(raw.begin(), raw.end(), decoded.begin()));
  });
}

TEST(CodecChain, DamagedRecipesAndBodiesNeverLeaveTheirBounds) {
  Random random(6);
  for (const std::string& name : test::chain_names()) {
    const CodecChain chain = *CodecChain::parse(name);
    for (int repeat = 0; repeat < 60; ++repeat) {
      const std::vector<ElementType> types = test::element_types();
      const Pack pack = test::random_pack(types[random() % types.size()], random);
      EncodedBytes encoded = *encode_chain(chain, pack.raw, pack.shape);
      ByteVector& victim = random() % 2 == 0 || encoded.body.empty() ? encoded.recipe : encoded.body;
      for (uint64_t flips = 1 + random() % 4; flips > 0; --flips) {
        victim[random() % victim.size()] ^= static_cast<std::byte>(1u << random() % 8);
      }
      if (random() % 4 == 0) victim.resize(random() % victim.size());
      ByteVector decoded(pack.raw.size());
      decode_chain(encoded.recipe, encoded.body, decoded).ignore("either answer will do");
      (void)recipe_name(encoded.recipe);
    }
  }
}

TEST(CodecChain, NamesCanBeParsedAgain) {
  for (const std::string& name : test::chain_names()) EXPECT_EQ(CodecChain::parse(name)->name(), name);
}

TEST(CodecChain, RefusesUnknownCodecsAndLevels) {
  EXPECT_EQ(CodecChain::parse("zip").status().code(), StatusCode::unsupported);
  EXPECT_EQ(CodecChain::parse("").status().code(), StatusCode::unsupported);
  EXPECT_EQ(CodecChain::parse("zstd+").status().code(), StatusCode::unsupported);
  EXPECT_EQ(CodecChain::parse("zstd:fast").status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(CodecChain::parse("zstd:").status().code(), StatusCode::invalid_argument);
  for (const char* beyond : {"lorenzo:9", "zstd:99", "zstd:-8", "gzip:13", "gzip:-1", "lzma:10", "lzma:-1", "lz4:13",
                             "lz4:-1", "fpzip:1", "constant:1", "planes:1", "magnitudes:1"})
    EXPECT_EQ(CodecChain::parse(beyond).status().code(), StatusCode::invalid_argument) << beyond;
  EXPECT_EQ(CodecChain::parse("zstd+zstd+zstd+zstd+zstd+zstd+zstd+zstd+zstd").status().code(),
            StatusCode::invalid_argument);
}

TEST(CodecChain, TakesOrRefusesAnyLevel) {
  Random random(8);
  const ElementType type{ElementKind::floating, ByteOrder::little, 8};
  const ByteVector raw = test::smooth_bytes(type, 1000, random);
  for (const char* codec : {"zstd", "lz4", "gzip", "lzma", "fpc", "fpzip", "lorenzo", "signlast", "delta", "shuffle",
                            "bitshuffle", "planes", "magnitudes"}) {
    for (const char* level : {"-1", "0", "1", "9", "10", "12", "13", "22", "99", "2147483647"}) {
      SCOPED_TRACE(std::string(codec) + ":" + level);
      const Result<CodecChain> chain = CodecChain::parse(std::string(codec) + ":" + level);
      if (!chain.ok()) continue;
      const Result<EncodedBytes> encoded = encode_chain(*chain, raw, {type, {test::run_of(1000)}});
      ASSERT_TRUE(encoded.ok()) << encoded.status().to_string();
      ByteVector decoded(raw.size());
      ASSERT_TRUE(decode_chain(encoded->recipe, encoded->body, decoded).ok());
      EXPECT_EQ(decoded, raw);
    }
  }
}

TEST(CodecChain, LeavesOutStagesThatDoNotApply) {
  Random random(7);
  const ElementType type{ElementKind::signed_integer, ByteOrder::little, 4};
  const ByteVector raw = test::smooth_bytes(type, 1000, random);
  const Result<EncodedBytes> encoded =
      encode_chain(*CodecChain::parse("fpc+fpzip+zstd"), raw, {type, {test::run_of(1000)}});
  EXPECT_EQ(*recipe_name(encoded->recipe), "zstd");
}

TEST(CodecChain, StoresWhatItCannotShrink) {
  Random random(8);
  const ByteVector raw = test::random_bytes(1000, random);
  const Result<EncodedBytes> encoded = encode_chain(*CodecChain::parse("zstd"), raw, {{}, {test::run_of(1000)}});
  EXPECT_TRUE(recipe_is_store(encoded->recipe));
  EXPECT_EQ(encoded->body, raw);
  EXPECT_EQ(*recipe_name(encoded->recipe), "store");
}

TEST(CodecChain, LzmaFindsWhatIsFarAwayInThePack) {
  Random random(5);
  const ByteVector piece = test::random_bytes(64_KiB, random);
  ByteVector raw(20_MiB);
  std::copy(piece.begin(), piece.end(), raw.begin());
  std::copy(piece.begin(), piece.end(), raw.end() - static_cast<ptrdiff_t>(piece.size()));
  const PackShape shape{{}, {test::run_of(raw.size())}};
  const EncodedBytes encoded = *encode_chain(*CodecChain::parse("lzma"), raw, shape);
  EXPECT_LT(encoded.body.size(), piece.size() + 16_KiB);
  ByteVector back(raw.size());
  ASSERT_TRUE(decode_chain(encoded.recipe, encoded.body, back).ok());
  EXPECT_EQ(back, raw);
}

TEST(CodecRecipe, OfManyEqualArraysTakesAFewBytes) {
  Random random(9);
  const ElementType type{ElementKind::floating, ByteOrder::big, 4};
  const PackShape shape{type, std::vector<varve::Run>(32, test::run_of(2500, {50, 50}))};
  const ByteVector raw = test::smooth_bytes(type, 32 * 2500, random);
  EXPECT_LT(encode_chain(*CodecChain::parse("lorenzo+shuffle+zstd"), raw, shape)->recipe.size(), 32u);
}

TEST(CodecRecipe, OfAnArrayLargerThanAnyPackGivesItBack) {
  test::Random random(7);
  for (const std::vector<uint64_t>& dims : std::vector<std::vector<uint64_t>>{
           {kPackBytesMax}, {kPackBytesMax + 1}, {kPackBytesMax + 1, 3}, {2, 70'000'000}}) {
    const ElementType type{ElementKind::floating, ByteOrder::little, 8};
    const test::Pack pack{{type, {varve::Run{5000, dims, false}}}, test::smooth_bytes(type, 5000, random)};
    for (const char* name : {"lorenzo", "lorenzo:4+shuffle+zstd", "fpzip"}) {
      const CodecChain chain = CodecChain::parse(name).value();
      const EncodedBytes encoded = encode_chain(chain, pack.raw, pack.shape).value();
      ByteVector raw(pack.raw.size());
      const Status decoded = decode_chain(encoded.recipe, encoded.body, raw);
      ASSERT_TRUE(decoded.ok()) << name << ": " << decoded.to_string();
      EXPECT_EQ(raw, pack.raw) << name;
    }
  }
}

TEST(NumberRuns, MayHaveDimensionsAboveTheLimitAsTheyOnceWereWritten) {
  const NumberRun large{.elements = 100, .dims = {10, uint64_t{1} << 40}, .dimension_count = 2};
  ByteVector params;
  ByteWriter writer(params);
  write_runs(writer, {large});
  ByteReader reader(params);
  const std::vector<NumberRun> runs = read_runs(reader, 100).value();
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(runs[0].dims[0], 10U);
  EXPECT_EQ(runs[0].dims[1], kPackBytesMax);

  NumberRun whole{.elements = uint64_t{1} << 40, .dims = {uint64_t{1} << 40}, .whole = true};
  params.clear();
  write_runs(writer, {whole});
  ByteReader again(params);
  EXPECT_EQ(read_runs(again, kPackBytesMax).status().code(), StatusCode::corrupt);
}

TEST(CodecRecipe, OfAnUnknownCodecIsUnsupportedAndNamesIt) {
  ByteVector recipe, body(4), raw(4);
  ByteWriter writer(recipe);
  writer.u8(1);
  writer.varint(37000);
  writer.varint(4);
  writer.varint(0);
  const Status status = decode_chain(recipe, body, raw);
  EXPECT_EQ(status.code(), StatusCode::unsupported);
  EXPECT_NE(status.to_string().find("37000"), std::string::npos);
  EXPECT_EQ(*recipe_name(recipe), "codec-37000");
}

TEST(CodecRecipe, MayNotAskForMoreThanItsPack) {
  ByteVector body(4), raw(4);
  const auto recipe_of = [](uint8_t stages, uint64_t first_bytes, uint64_t second_bytes) {
    ByteVector recipe;
    ByteWriter writer(recipe);
    writer.u8(stages);
    for (uint8_t i = 0; i < stages; ++i) {
      writer.varint(static_cast<uint32_t>(CodecNumber::zstd));
      writer.varint(i == 0 ? first_bytes : second_bytes);
      writer.varint(0);
    }
    return recipe;
  };
  EXPECT_EQ(decode_chain(recipe_of(9, 4, 4), body, raw).code(), StatusCode::corrupt);
  EXPECT_EQ(decode_chain(recipe_of(1, 5, 4), body, raw).code(), StatusCode::corrupt);
  EXPECT_EQ(decode_chain(recipe_of(2, 4, uint64_t{1} << 40), body, raw).code(), StatusCode::corrupt);
  EXPECT_EQ(decode_chain({}, body, raw).code(), StatusCode::corrupt);
}

}  // namespace
}  // namespace varve
