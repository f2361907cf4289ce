#include "codec/across.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <bit>
#include <cmath>
#include <limits>
#include <set>

#include "codec/across_kernels.h"
#include "codec/chooser.h"
#include "codec/number_bits.h"
#include "codec/numbers.h"
#include "codec/registry.h"
#include "codec/test_packs.h"

#if defined(__x86_64__)
#include <pmmintrin.h>
#endif

namespace varve {
namespace {

using test::Random;

constexpr kernels::NumberFormat kFormats[] = {{4, false, true}, {4, true, true}, {8, false, true}, {8, true, true}};

/// Numbers of every sort: smooth ones, zeros of both signs, denormals, infinities, NaN with any payload.
ByteVector numbers(const kernels::NumberFormat& format, size_t count, Random& random) {
  const ElementType type{ElementKind::floating, format.big_endian ? ByteOrder::big : ByteOrder::little, format.bytes};
  ByteVector raw(count * format.bytes);
  const double phase = static_cast<double>(random() % 100);
  for (size_t i = 0; i < count; ++i) {
    std::byte* const at = raw.data() + i * format.bytes;
    test::put_number(at, type, 2 + std::sin(phase + static_cast<double>(i) / 20));
    if (random() % 8 != 0) continue;
    switch (random() % 6) {
      case 0: test::put_number(at, type, 0); break;
      case 1: test::put_number(at, type, -0.0); break;
      case 2: test::put_number(at, type, std::numeric_limits<double>::infinity()); break;
      case 3: test::put_number(at, type, format.bytes == 4 ? 3e-40 : 5e-310); break;
      case 4: test::put_number(at, type, format.bytes == 4 ? 3e38 : 1.7e308); break;
      default:
        for (uint32_t byte = 0; byte < format.bytes; ++byte) at[byte] = static_cast<std::byte>(random());
    }
  }
  return raw;
}

TEST(Across, KernelsDoWhatTheirPlainTwinsDo) {
  Random random(1);
  for (const kernels::NumberFormat& format : kFormats) {
    for (size_t count : {0, 1, 2, 7, 8, 9, 15, 16, 17, 63, 64, 65, 1000, 1023, 1031, 5000}) {
      SCOPED_TRACE(std::to_string(format.bytes) + " bytes, " + std::to_string(count));
      const ByteVector values = numbers(format, count, random), reference = numbers(format, count, random);
      ByteVector fast(values.size()), plain(values.size()), back(values.size());
      kernels::quotient_forward(format, values, reference, fast);
      kernels::quotient_forward_plain(format, values, reference, plain);
      ASSERT_EQ(fast, plain);
      kernels::quotient_inverse(format, fast, reference, back);
      EXPECT_EQ(back, values);
      kernels::quotient_inverse_plain(format, fast, reference, back);
      EXPECT_EQ(back, values);
      kernels::subtract_codes(format.bytes, fast, values, plain);
      kernels::add_codes(format.bytes, plain, values, back);
      EXPECT_EQ(back, fast);
    }
  }
}

TEST(Across, BitsAreThoseFromTheHighestOneOn) {
  Random random(4);
  for (const uint32_t bytes : {4u, 8u}) {
    for (const size_t count : {0, 1, 3, 4, 7, 8, 9, 31, 1000}) {
      ByteVector codes(count * bytes);
      uint64_t bits = 0;
      for (size_t i = 0; i < count; ++i) {
        const uint64_t code = random() >> (64 - 8 * bytes) >> random() % (8 * bytes);
        kernels::store_number(codes.data() + i * bytes, {.bytes = bytes}, code);
        bits += static_cast<uint64_t>(std::bit_width(code));
      }
      EXPECT_EQ(kernels::code_bits(bytes, codes), bits) << bytes << " bytes, " << count;
    }
  }
}

#if defined(__x86_64__)
TEST(Across, IsTheSameHoweverTheProgramHasItsFloatingPointUnit) {
  Random random(2);
  for (const kernels::NumberFormat& format : kFormats) {
    const ByteVector values = numbers(format, 3000, random), reference = numbers(format, 3000, random);
    ByteVector usual(values.size()), flushed(values.size()), back(values.size());
    kernels::quotient_forward(format, values, reference, usual);
    const unsigned before = _mm_getcsr();
    _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);
    _MM_SET_DENORMALS_ZERO_MODE(_MM_DENORMALS_ZERO_ON);
    _MM_SET_ROUNDING_MODE(_MM_ROUND_UP);
    const unsigned set = _mm_getcsr();
    kernels::quotient_forward(format, values, reference, flushed);
    kernels::quotient_inverse(format, usual, reference, back);
    const unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    EXPECT_EQ(usual, flushed);
    EXPECT_EQ(back, values);
    EXPECT_EQ(set, after) << "the program's setting is kept";
  }
}
#endif

/// Parts that may or may not refer to each other, of any lengths.
std::vector<PackPart> random_parts(uint64_t elements, Random& random) {
  std::vector<PackPart> parts;
  const uint64_t usual = 1 + random() % 300;
  while (elements > 0) {
    PackPart part{.elements = random() % 4 == 0 ? 1 + random() % 500 : usual, .reference = {}};
    part.elements = std::min(part.elements, elements);
    if (!parts.empty() && random() % 4 != 0) part.reference = static_cast<uint32_t>(random() % parts.size());
    elements -= part.elements;
    parts.push_back(part);
  }
  return parts;
}

TEST(Across, GivesBackEveryBitOfAnyParts) {
  Random random(3);
  for (int repeat = 0; repeat < 400; ++repeat) {
    const kernels::NumberFormat format = kFormats[random() % 4];
    PackShape shape{
        .type = {ElementKind::floating, format.big_endian ? ByteOrder::big : ByteOrder::little, format.bytes},
        .runs = test::random_runs(random)};
    const size_t count = test::run_elements(shape.runs);
    shape.parts = random_parts(random() % 8 == 0 ? random() % 1000 : count, random);
    ByteVector raw = numbers(format, count, random);
    raw.resize(raw.size() + random() % format.bytes);
    ByteVector params, out, decoded(raw.size());
    ASSERT_TRUE(across_codec().encode(raw, shape, 0, params, out).ok());
    ASSERT_TRUE(across_codec().decode(out, params, decoded).ok());
    ASSERT_EQ(decoded, raw);
    // Damage is noticed, or stays within bounds.
    ByteVector& victim = random() % 2 == 0 ? params : out;
    if (victim.empty()) continue;
    victim[random() % victim.size()] ^= static_cast<std::byte>(1u << random() % 8);
    (void)across_codec().decode(out, params, decoded);
  }
}

/// What a number may be that is not like the others.
enum class SpecialKind : uint8_t { quiet_nan, signalling_nan, infinity, zero, denormal };
constexpr size_t kSpecialKinds = 5;

/// The bits of a special number of this kind, of either sign and with any payload.
uint64_t special_bits(const kernels::NumberFormat& format, SpecialKind kind, Random& random) {
  const unsigned width = 8 * format.bytes, fraction_width = format.bytes == 4 ? 23 : 52;
  const uint64_t sign = (random() & 1) << (width - 1), quiet = uint64_t{1} << (fraction_width - 1);
  const uint64_t exponent = (uint64_t{1} << (width - 1)) - (uint64_t{1} << fraction_width);
  // Short ones as well as long ones: the smallest denormal, the largest.
  const uint64_t payload = (random() & (quiet - 1)) >> random() % (fraction_width - 1);
  switch (kind) {
    case SpecialKind::quiet_nan: return sign | exponent | quiet | payload;
    case SpecialKind::signalling_nan: return sign | exponent | std::max<uint64_t>(payload, 1);
    case SpecialKind::infinity: return sign | exponent;
    case SpecialKind::zero: return sign;
    case SpecialKind::denormal: return sign | (random() % 2 * quiet) | std::max<uint64_t>(payload, 1);
  }
  return 0;
}

/// Of about every third place, what special number is there; nothing elsewhere.
std::vector<std::optional<SpecialKind>> special_places(size_t count, Random& random) {
  std::vector<std::optional<SpecialKind>> places(count);
  for (std::optional<SpecialKind>& place : places) {
    if (random() % 3 == 0) place = static_cast<SpecialKind>(random() % kSpecialKinds);
  }
  return places;
}

void put_specials(const kernels::NumberFormat& format, const std::vector<std::optional<SpecialKind>>& places,
                  Random& random, ByteVector& raw) {
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i])
      kernels::store_number(raw.data() + i * format.bytes, format, special_bits(format, *places[i], random));
  }
}

/// A variable with many special numbers, and what may predict it.
struct Specials {
  ByteVector reference, numbers;
};

/// Numbers that have nothing to do with their reference, so that the special ones of either meet all that the other
/// has.
Specials unrelated_specials(const kernels::NumberFormat& format, size_t count, Random& random) {
  Specials made{numbers(format, count, random), numbers(format, count, random)};
  put_specials(format, special_places(count, random), random, made.reference);
  put_specials(format, special_places(count, random), random, made.numbers);
  return made;
}

/// Numbers that are a share of their reference, but for the special ones, which are at the same places.
Specials proportional_specials(const kernels::NumberFormat& format, size_t count, Random& random) {
  const ElementType type{ElementKind::floating, format.big_endian ? ByteOrder::big : ByteOrder::little, format.bytes};
  std::normal_distribution<double> noise(0, 0.3);
  Specials made{ByteVector(count * format.bytes), ByteVector(count * format.bytes)};
  for (size_t i = 0; i < count; ++i) {
    const double value = std::exp(noise(random));
    test::put_number(made.reference.data() + i * format.bytes, type, value);
    test::put_number(made.numbers.data() + i * format.bytes, type, value * 0.24);
  }
  const std::vector<std::optional<SpecialKind>> places = special_places(count, random);
  put_specials(format, places, random, made.reference);
  put_specials(format, places, random, made.numbers);
  return made;
}

/// Numbers that have all bits of their reference but the lowest few, the special ones as well.
Specials near_specials(const kernels::NumberFormat& format, size_t count, Random& random) {
  Specials made = proportional_specials(format, count, random);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t bits = kernels::load_number(made.reference.data() + i * format.bytes, format);
    kernels::store_number(made.numbers.data() + i * format.bytes, format, bits ^ (random() & 3));
  }
  return made;
}

constexpr Specials (*kSpecials[])(const kernels::NumberFormat&, size_t, Random&) = {
    unrelated_specials, proportional_specials, near_specials};

TEST(Across, KernelsDoWhatTheirPlainTwinsDoWhereEveryThirdNumberIsSpecial) {
  Random random(6);
  for (const kernels::NumberFormat& format : kFormats) {
    for (const auto make : kSpecials) {
      for (size_t count : {1, 8, 9, 63, 64, 65, 257, 1031, 5000, 20'011}) {
        SCOPED_TRACE(std::to_string(format.bytes) + " bytes, " + std::to_string(count));
        const Specials made = make(format, count, random);
        ByteVector fast(made.numbers.size()), plain(fast.size()), back(fast.size());
        kernels::quotient_forward(format, made.numbers, made.reference, fast);
        kernels::quotient_forward_plain(format, made.numbers, made.reference, plain);
        ASSERT_EQ(fast, plain);
        kernels::quotient_inverse(format, fast, made.reference, back);
        ASSERT_EQ(back, made.numbers);
        std::fill(back.begin(), back.end(), std::byte{0});
        kernels::quotient_inverse_plain(format, fast, made.reference, back);
        ASSERT_EQ(back, made.numbers);
        // Codes that no encoder has made.
        const ByteVector any = test::random_bytes(fast.size(), random);
        kernels::quotient_inverse(format, any, made.reference, back);
        kernels::quotient_inverse_plain(format, any, made.reference, plain);
        ASSERT_EQ(back, plain);
      }
    }
  }
}

TEST(Across, DenormalsArePredictedAsOtherNumbersAre) {
  // Each number but the first of a lane is to the one before as the reference's is: so nothing is left of it.
  constexpr size_t count = 8 * kernels::kQuotientLanes;
  for (const kernels::NumberFormat& format : kFormats) {
    ByteVector values(count * format.bytes), reference(values.size()), codes(values.size());
    for (size_t i = 0; i < count; ++i) {
      kernels::store_number(reference.data() + i * format.bytes, format, 4 * (i % 8 + 1));
      kernels::store_number(values.data() + i * format.bytes, format, 12 * (i % 8 + 1));
    }
    for (const auto forward : {kernels::quotient_forward, kernels::quotient_forward_plain}) {
      forward(format, values, reference, codes);
      for (size_t i = 0; i < count; ++i) {
        const uint64_t code = kernels::load_number(codes.data() + i * format.bytes, {.bytes = format.bytes});
        EXPECT_EQ(code, i % 8 == 0 ? 16u : 0u) << format.bytes << " bytes, " << i;
      }
    }
  }
}

/// How each part of a pack is predicted: FORMAT.md, "across".
std::vector<uint8_t> predictions_of(ByteSpan params) {
  ByteReader reader(params);
  EXPECT_TRUE(reader.u8().ok());
  std::vector<uint8_t> predictions(reader.varint().value());
  for (uint8_t& prediction : predictions) {
    const uint64_t elements = reader.varint().value();
    prediction = reader.u8().value();
    if (prediction != 0) reader.varint().value();
    if (prediction != 1) read_runs(reader, elements).value();
  }
  return predictions;
}

TEST(Across, GivesBackEveryBitWhereEveryThirdNumberIsSpecial) {
  Random random(7);
  for (const kernels::NumberFormat& format : kFormats) {
    std::set<uint8_t> predictions;
    for (int repeat = 0; repeat < 60; ++repeat) {
      const size_t count = 1 + random() % 6000;
      SCOPED_TRACE(std::to_string(format.bytes) + " bytes, " + std::to_string(count));
      const Specials made = kSpecials[static_cast<size_t>(repeat) % std::size(kSpecials)](format, count, random);
      const PackShape shape{
          .type = {ElementKind::floating, format.big_endian ? ByteOrder::big : ByteOrder::little, format.bytes},
          .runs = {test::run_of(count), test::run_of(count)},
          .parts = {{count, {}}, {count, 0}}};
      ByteVector raw = made.reference;
      raw.insert(raw.end(), made.numbers.begin(), made.numbers.end());
      ByteVector params, out, decoded(raw.size());
      ASSERT_TRUE(across_codec().encode(raw, shape, 0, params, out).ok());
      ASSERT_TRUE(across_codec().decode(out, params, decoded).ok());
      ASSERT_EQ(decoded, raw);
      const std::vector<uint8_t> chosen = predictions_of(params);
      ASSERT_EQ(chosen.size(), 2u);
      predictions.insert(chosen[1]);
      if (chosen[1] != 1) continue;
      ByteVector plain(made.numbers.size());
      kernels::quotient_forward_plain(format, made.numbers, made.reference, plain);
      ASSERT_TRUE(std::equal(plain.begin(), plain.end(), out.begin() + static_cast<ptrdiff_t>(plain.size())));
    }
    EXPECT_EQ(predictions, (std::set<uint8_t>{0, 1, 2})) << "each prediction is met";
  }
}

TEST(Across, BundlesWithManySpecialNumbersComeBackFromEveryChain) {
  Random random(8);
  for (const kernels::NumberFormat& format : kFormats) {
    for (const auto make : kSpecials) {
      const Specials made = make(format, 4000, random);
      ByteVector raw = made.reference;
      raw.insert(raw.end(), made.numbers.begin(), made.numbers.end());
      const PackShape shape{
          .type = {ElementKind::floating, format.big_endian ? ByteOrder::big : ByteOrder::little, format.bytes},
          .runs = {test::run_of(4000), test::run_of(4000)},
          .parts = {{4000, {}}, {4000, 0}}};
      for (const char* chain :
           {"across+magnitudes", "across+planes", "across+shuffle+zstd", "across+bitshuffle+zstd"}) {
        const Result<EncodedBytes> encoded = encode_chain(CodecChain::parse(chain).value(), raw, shape);
        ASSERT_TRUE(encoded.ok()) << encoded.status().to_string();
        // What has nothing in common may be stored as it is.
        EXPECT_TRUE(make == unrelated_specials || *recipe_name(encoded->recipe) == chain) << chain;
        ByteVector decoded(raw.size());
        ASSERT_TRUE(decode_chain(encoded->recipe, encoded->body, decoded).ok());
        ASSERT_EQ(decoded, raw) << chain;
      }
    }
  }
}

/// `count` values of a field, and of others that go with it.
struct Species {
  ByteVector density, share, other;
};
Species species(size_t count, Random& random) {
  const ElementType type{ElementKind::floating, ByteOrder::little, 8};
  std::normal_distribution<double> noise(0, 0.3);
  Species all{ByteVector(count * 8), ByteVector(count * 8), ByteVector(count * 8)};
  for (size_t i = 0; i < count; ++i) {
    const double density = std::exp(noise(random));
    test::put_number(all.density.data() + 8 * i, type, density);
    test::put_number(all.share.data() + 8 * i, type, density * 0.24);
    test::put_number(all.other.data() + 8 * i, type, noise(random));
  }
  return all;
}

TEST(Across, FindsWhatGoesWithWhat) {
  Random random(4);
  const Species all = species(2000, random);
  const PackShape shape{.type = {ElementKind::floating, ByteOrder::little, 8}, .runs = {{2000, {}, false}}};
  const std::vector<ByteSpan> samples = {all.other, all.share, all.density};
  const Predictions found = find_predictions(shape, samples);
  ASSERT_EQ(found.order.size(), 2u);
  EXPECT_EQ(found.order[0] + found.order[1], 3u) << "what goes with nothing is left out";
  EXPECT_FALSE(found.reference[found.order[0]]);
  EXPECT_EQ(found.reference[found.order[1]], found.order[0]);
  EXPECT_FALSE(found.reference[0]);
}

TEST(Across, ASpeciesThatIsAShareOfTheDensityTakesNearlyNothing) {
  Random random(5);
  const Species all = species(20'000, random);
  ByteVector raw = all.density;
  raw.insert(raw.end(), all.share.begin(), all.share.end());
  PackShape shape{.type = {ElementKind::floating, ByteOrder::little, 8},
                  .runs = {{20'000, {}, false}, {20'000, {}, false}}};
  const std::vector<PackPart> parts = {{20'000, {}}, {20'000, 0}};
  for (const auto& [effort, name] : {std::pair("fast", "across+planes"), std::pair("balanced", "across+magnitudes")}) {
    const CodecPolicy policy = CodecPolicy::parse(effort).value();
    shape.parts.clear();
    const size_t apart = make_encoder(policy)->encode(raw, shape)->body.size();
    shape.parts = parts;
    const std::unique_ptr<Encoder> encoder = make_encoder(policy);
    for (const char* which : {"first", "next"}) {
      const Result<EncodedBytes> together = encoder->encode(raw, shape);
      EXPECT_LT(static_cast<double>(together->body.size()), 0.7 * static_cast<double>(apart))
          << effort << ", " << which;
      EXPECT_EQ(*recipe_name(together->recipe), name);
      ByteVector decoded(raw.size());
      ASSERT_TRUE(decode_chain(together->recipe, together->body, decoded).ok());
      EXPECT_EQ(decoded, raw);
    }
  }
}

}  // namespace
}  // namespace varve
