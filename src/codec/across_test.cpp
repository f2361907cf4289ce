#include "codec/across.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <bit>
#include <cmath>
#include <limits>

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
