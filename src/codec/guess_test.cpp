#include "codec/guess.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "codec/chooser.h"

namespace varve {
namespace {

/// A smooth field of so many rows, with noise in the last bits, as numbers of this type.
template <class T>
ByteVector field_of(size_t rows, size_t columns, bool big_endian) {
  std::mt19937_64 random(7);
  ByteVector raw;
  for (size_t y = 0; y < rows; ++y) {
    for (size_t x = 0; x < columns; ++x) {
      const double noise = 1e-7 * static_cast<double>(random() % 1000) / 1000;
      const auto value = static_cast<T>(std::sin(0.01 * static_cast<double>(x * x)) +
                                        3 * std::cos(1e-3 * static_cast<double>(y * y)) + noise);
      std::array<std::byte, sizeof(T)> bytes;
      std::memcpy(bytes.data(), &value, sizeof(T));
      if (big_endian) std::reverse(bytes.begin(), bytes.end());
      raw.insert(raw.end(), bytes.begin(), bytes.end());
    }
  }
  return raw;
}

ByteVector behind(std::initializer_list<int> front, ByteVector raw) {
  for (const int byte : front) raw.insert(raw.begin(), static_cast<std::byte>(byte));
  return raw;
}

TEST(Guess, TellsDoublesFromFloatsInEitherOrderAndTheirRows) {
  for (const bool big_endian : {false, true}) {
    const auto doubles = guess_numbers(field_of<double>(200, 300, big_endian), {});
    ASSERT_TRUE(doubles);
    EXPECT_EQ(doubles->type.name(), big_endian ? "F64BE" : "F64LE");
    EXPECT_EQ(doubles->phase, 0U);
    ASSERT_FALSE(doubles->dims.empty());
    EXPECT_EQ(doubles->dims.front(), 300U);

    const auto floats = guess_numbers(field_of<float>(200, 300, big_endian), {});
    ASSERT_TRUE(floats);
    EXPECT_EQ(floats->type.name(), big_endian ? "F32BE" : "F32LE");
    ASSERT_FALSE(floats->dims.empty());
    EXPECT_EQ(floats->dims.front(), 300U);
  }
}

TEST(Guess, FindsWhereNumbersBegin) {
  const ByteVector raw = behind({1, 2, 3, 4, 5}, field_of<double>(200, 300, false));
  const auto guess = guess_numbers(raw, {});
  ASSERT_TRUE(guess);
  EXPECT_EQ(guess->type.name(), "F64LE");
  EXPECT_EQ(guess->phase, 5U);
}

/// Records of so many numbers, each along a line of its own, with noise: as large as the power of `base` that
/// `power_of` gives, and steeper by `slope` with each record.
struct Lines {
  size_t records, fields;
  double base, slope, noise;
};
template <class PowerOf>
std::vector<double> records_of(const Lines& lines, uint64_t seed, const PowerOf& power_of) {
  std::mt19937_64 random(seed);
  std::vector<double> numbers;
  for (size_t i = 0; i < lines.records; ++i) {
    for (size_t field = 0; field < lines.fields; ++field) {
      const double noise = lines.noise * static_cast<double>(random() % 1000);
      numbers.push_back(std::pow(lines.base, static_cast<double>(power_of(field))) *
                        (1 + lines.slope * static_cast<double>(i) + noise));
    }
  }
  return numbers;
}

TEST(Guess, FindsTheLengthOfRecords) {
  const std::vector<double> particles = records_of({10'000, 5, 90, 1e-5, 1e-9}, 3, [](size_t field) { return field; });
  const auto guess = guess_numbers(std::as_bytes(std::span(particles)), {});
  ASSERT_TRUE(guess);
  EXPECT_EQ(guess->type.name(), "F64LE");
  EXPECT_EQ(guess->record, 5U);
  EXPECT_TRUE(guess->dims.empty());
}

TEST(Guess, FindsNothingInNoiseAndInConstants) {
  std::mt19937_64 random(5);
  ByteVector noise(100'000);
  for (std::byte& byte : noise) byte = static_cast<std::byte>(random());
  EXPECT_FALSE(guess_numbers(noise, {}));
  EXPECT_FALSE(guess_numbers(ByteVector(100'000), {}));
  EXPECT_FALSE(guess_numbers(ByteVector(100), {}));
}

/// Numbers of any sign and no order, whose size changes slowly.
template <class T>
ByteVector wave_functions(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<T> numbers;
  for (size_t i = 0; i < count; ++i) {
    const double size = std::exp(-6 - std::cos(1e-4 * static_cast<double>(i)));
    numbers.push_back(static_cast<T>(size * std::normal_distribution<double>()(random)));
  }
  const ByteSpan bytes = std::as_bytes(std::span(numbers));
  return {bytes.begin(), bytes.end()};
}

TEST(Guess, FindsFloatsOfWhichOnlyTheSizeIsAlike) {
  for (const int phase : {0, 4, 5}) {
    ByteVector raw = wave_functions<double>(20'000, 3);
    for (int i = 0; i < phase; ++i) raw.insert(raw.begin(), static_cast<std::byte>(17 * i));
    const auto guess = guess_numbers(raw, {});
    ASSERT_TRUE(guess) << phase;
    EXPECT_TRUE(guess->sign_last);
    EXPECT_EQ(guess->type.name(), "F64LE");
    EXPECT_EQ(guess->phase, static_cast<uint32_t>(phase));
    EXPECT_TRUE(fits(raw, *guess));
    const std::vector<NumberGuess> known = {*guess};
    EXPECT_EQ(guess_numbers(raw, known), *guess);
  }
  const auto guess = guess_numbers(wave_functions<float>(40'000, 3), {});
  ASSERT_TRUE(guess);
  EXPECT_EQ(guess->type.name(), "F32LE");

  const ByteVector raw = wave_functions<double>(40'000, 5);
  const PackShape bytes{.type = {}, .runs = {{raw.size(), {}, false}}};
  const EncodedBytes encoded = *make_encoder(*CodecPolicy::parse("balanced"))->encode(raw, bytes);
  EXPECT_EQ(*recipe_name(encoded.recipe), "signlast+magnitudes");
  for (const char* chain : {"shuffle:8+zstd:1", "delta:8+shuffle:8+zstd:1", "zstd:3"})
    EXPECT_LT(size_of(encoded), size_of(*encode_chain(*CodecChain::parse(chain), raw, bytes))) << chain;
  ByteVector decoded(raw.size());
  ASSERT_TRUE(decode_chain(encoded.recipe, encoded.body, decoded).ok());
  EXPECT_EQ(decoded, raw);
}

TEST(Guess, KeepsTheLastOneWhereItFits) {
  const ByteVector raw = field_of<double>(200, 300, false);
  const auto guess = guess_numbers(raw, {});
  ASSERT_TRUE(guess);
  EXPECT_EQ(guess_numbers(ByteSpan(raw).subspan(8 * 17, 200'000), {{*guess}}), guess);
  const auto other = guess_numbers(field_of<double>(200, 300, true), {{*guess}});
  ASSERT_TRUE(other);
  EXPECT_EQ(other->type.name(), "F64BE");
}

/// A smooth field, the product of two waves, with noise.
template <class T>
ByteVector waves(size_t side, double noise, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> speed(1, 3);
  const double across = 6 * speed(random) / static_cast<double>(side),
               along = 6 * speed(random) / static_cast<double>(side);
  std::vector<T> field;
  for (size_t y = 0; y < side; ++y) {
    for (size_t x = 0; x < side; ++x) {
      field.push_back(
          static_cast<T>(std::sin(across * static_cast<double>(y)) * std::cos(along * static_cast<double>(x)) + 2 +
                         noise * normal(random)));
    }
  }
  const ByteSpan bytes = std::as_bytes(std::span(field));
  return {bytes.begin(), bytes.end()};
}

TEST(Guess, FindsTheRowsOfSmoothFields) {
  const auto row_of = [](const ByteVector& raw) -> uint64_t {
    const auto guess = guess_numbers(raw, {});
    return guess && !guess->dims.empty() ? guess->dims.front() : 0;
  };
  for (const double noise : {1e-6, 1e-4}) {
    for (const uint64_t seed : {1, 2, 3}) {
      EXPECT_EQ(row_of(waves<float>(256, noise, seed)), 256U) << noise << " " << seed;
      EXPECT_EQ(row_of(waves<double>(256, noise, seed)), 256U) << noise << " " << seed;
    }
    EXPECT_EQ(row_of(waves<float>(512, noise, 4)), 512U) << noise;
  }
}

TEST(Guess, OfNumbersThatAreToldKeepsToTheirType) {
  const ByteVector raw = waves<float>(256, 1e-4, 5);
  const ElementType type{ElementKind::floating, ByteOrder::little, 8};
  const auto guess = guess_numbers(raw, {}, type), right = guess_numbers(raw, {});
  ASSERT_TRUE(guess && right);
  EXPECT_EQ(guess->type, type);
  EXPECT_EQ(right->type.bytes, 4U);
  EXPECT_EQ(guess_numbers(raw, {{*right}}, type), guess) << "not what is known of another type";
}

ByteVector joined(std::initializer_list<ByteVector> parts) {
  ByteVector all;
  for (const ByteVector& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

TEST(Regions, BeginWhereNumbersOfAnotherKindDo) {
  const ByteVector doubles = waves<double>(160, 1e-6, 1), floats = waves<float>(200, 1e-6, 2);
  const auto regions = find_regions(joined({doubles, behind({1, 2, 3, 4, 5}, floats), doubles}));
  ASSERT_EQ(regions.size(), 3U);
  EXPECT_NEAR(static_cast<double>(regions[0].bytes), static_cast<double>(doubles.size()), 4096);
  EXPECT_NEAR(static_cast<double>(regions[1].bytes), static_cast<double>(floats.size()), 8192);
  EXPECT_EQ(regions[0].bytes + regions[1].bytes + regions[2].bytes, 2 * doubles.size() + floats.size() + 5);
  for (const size_t i : {0, 2}) {
    ASSERT_TRUE(regions[i].type) << i;
    EXPECT_EQ(regions[i].type->bytes, 8U) << i;
  }
  ASSERT_TRUE(regions[1].type);
  EXPECT_EQ(regions[1].type->bytes, 4U);
}

TEST(Regions, AreOneWhereBytesAreAlikeOrFew) {
  EXPECT_EQ(find_regions(waves<double>(300, 1e-6, 1)).size(), 1U);
  EXPECT_EQ(find_regions(ByteVector(1 << 20)).size(), 1U);
  EXPECT_EQ(find_regions({}).size(), 1U);
  std::mt19937_64 random(5);
  ByteVector noise(500'000);
  for (std::byte& byte : noise) byte = static_cast<std::byte>(random());
  EXPECT_EQ(find_regions(noise).size(), 1U);
}

TEST(Regions, AreNeverEmptyAndShortOnlyAtTheEnd) {
  const ByteVector doubles = waves<double>(300, 1e-6, 1), floats = waves<float>(300, 1e-6, 2);
  for (const size_t all : {size_t{196'608}, size_t{262'144}, size_t{262'145}}) {
    for (size_t last = 1; last < 80'000; last += 2'731) {
      ByteVector raw(doubles.begin(), doubles.begin() + static_cast<ptrdiff_t>(all - last));
      raw.insert(raw.end(), floats.begin(), floats.begin() + static_cast<ptrdiff_t>(last));
      size_t bytes = 0;
      const auto regions = find_regions(raw);
      for (const Region& region : regions) {
        EXPECT_GT(region.bytes, 0U) << last;
        EXPECT_TRUE(region.bytes >= kSectionBytesMin || &region == &regions.back()) << last;
        bytes += region.bytes;
      }
      EXPECT_EQ(bytes, all) << last;
    }
  }
}

TEST(Guess, OfToldNumbersIsMadeAgainWhereItFitsNoMore) {
  // Rows of one length, then of another.
  const ElementType type{ElementKind::floating, ByteOrder::little, 8};
  const auto size_by = [&](Encoder& encoder, const ByteVector& raw) {
    const auto encoded = encoder.encode(raw, {.type = type, .runs = {{raw.size() / 8, {}, false}}});
    return encoded->body.size() + encoded->recipe.size();
  };
  const ByteVector before = waves<double>(256, 1e-6, 1), then = waves<double>(300, 1e-6, 2);
  const auto both = make_encoder({}), alone = make_encoder({});
  size_by(*both, before);
  EXPECT_LE(size_by(*both, then), size_by(*alone, then) * 101 / 100);
}

TEST(Regions, OfSomePacksDoNotKeepNumbersFromTheirChoice) {
  const auto encoder = make_encoder({}), alone = make_encoder({});
  const ByteVector mixed = joined({waves<double>(256, 1e-6, 1), waves<float>(256, 1e-6, 2)});
  const auto parts = encoder->encode(mixed, {.type = {}, .runs = {{mixed.size(), {}, false}}});
  EXPECT_EQ(recipe_name(parts->recipe).value(), "sections");
  const ByteVector field = waves<double>(256, 1e-6, 3);
  const PackShape told{.type = {ElementKind::floating, ByteOrder::little, 8}, .runs = {{field.size() / 8, {}, false}}};
  for (int pack = 0; pack < 3; ++pack)
    EXPECT_EQ(encoder->encode(field, told)->body.size(), alone->encode(field, told)->body.size()) << pack;
}

TEST(Regions, TakeHardlyMoreThanTheirNumbersByThemselves) {
  const std::vector<ByteVector> fields = {waves<double>(180, 1e-6, 1), waves<float>(256, 1e-6, 2),
                                          waves<double>(180, 1e-5, 3), waves<float>(256, 1e-5, 4)};
  for (const Effort effort : {Effort::balanced, Effort::best}) {
    const CodecPolicy policy{.effort = effort, .chain = {}};
    size_t alone = 0;
    for (size_t i = 0; i < fields.size(); ++i) {
      const uint32_t bytes = i % 2 == 0 ? 8 : 4;
      const uint64_t side = i % 2 == 0 ? 180 : 256;
      const PackShape told{.type = {ElementKind::floating, ByteOrder::little, bytes},
                           .runs = {{side * side, {side, side}, true}}};
      alone += make_encoder(policy)->encode(fields[i], told)->body.size();
    }
    ByteVector raw;
    for (const ByteVector& field : fields) {
      raw.insert(raw.end(), 9, std::byte{0x41});
      raw.insert(raw.end(), field.begin(), field.end());
    }
    const auto encoder = make_encoder(policy);
    for (int pack = 0; pack < 3; ++pack) {
      const auto encoded = encoder->encode(raw, {.type = {}, .runs = {{raw.size(), {}, false}}});
      ASSERT_TRUE(encoded.ok());
      EXPECT_EQ(recipe_name(encoded->recipe).value(), "sections");
      EXPECT_LT(encoded->body.size() + encoded->recipe.size(), alone * 104 / 100);
      ByteVector back(raw.size());
      ASSERT_TRUE(decode_chain(encoded->recipe, encoded->body, back).ok());
      EXPECT_EQ(back, raw);
    }
  }
}

TEST(Guess, MakesRecordsOfToldNumbersAsSmallAsOfUnknownBytes) {
  // Eleven doubles an atom, each like the last atom's.
  const std::vector<double> atoms = records_of({8'000, 11, 30, 1e-4, 1e-6}, 6, [](size_t field) { return field % 5; });
  const ByteSpan bytes = std::as_bytes(std::span(atoms));
  const ElementType type{ElementKind::floating, ByteOrder::little, 8};
  for (const Effort effort : {Effort::balanced, Effort::best}) {
    const CodecPolicy policy{.effort = effort, .chain = {}};
    const auto told = make_encoder(policy)->encode(bytes, {.type = type, .runs = {{atoms.size(), {}, false}}});
    const auto unknown = make_encoder(policy)->encode(bytes, {.type = {}, .runs = {{bytes.size(), {}, false}}});
    ASSERT_TRUE(told.ok() && unknown.ok());
    EXPECT_LT(told->body.size(), unknown->body.size() * 101 / 100);
    ByteVector back(bytes.size());
    ASSERT_TRUE(decode_chain(told->recipe, told->body, back).ok());
    EXPECT_TRUE(std::equal(back.begin(), back.end(), bytes.begin()));
  }
}

TEST(Guess, MakesBytesAsSmallAsNumbersThatAreTold) {
  for (const Effort effort : {Effort::balanced, Effort::best}) {
    const ByteVector field = field_of<double>(256, 512, false);
    const PackShape told{.type = {ElementKind::floating, ByteOrder::little, 8},
                         .runs = {{field.size() / 8, {512, 256}, true}}};
    const CodecPolicy policy{.effort = effort, .chain = {}};
    const auto as_told = make_encoder(policy)->encode(field, told);
    ASSERT_TRUE(as_told.ok());
    for (const size_t front : {0, 3}) {
      ByteVector raw(front, std::byte{0x5a});
      raw.insert(raw.end(), field.begin(), field.end());
      const auto guessed = make_encoder(policy)->encode(raw, {.type = {}, .runs = {{raw.size(), {}, false}}});
      ASSERT_TRUE(guessed.ok());
      EXPECT_LT(guessed->body.size(), as_told->body.size() * 103 / 100);
      ByteVector back(raw.size());
      ASSERT_TRUE(decode_chain(guessed->recipe, guessed->body, back).ok());
      EXPECT_EQ(back, raw);
    }
  }
}

}  // namespace
}  // namespace varve
