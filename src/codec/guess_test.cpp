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

TEST(Guess, FindsTheLengthOfRecords) {
  // Five numbers a particle, each along a line of its own.
  std::mt19937_64 random(3);
  std::vector<double> particles;
  for (size_t i = 0; i < 10'000; ++i) {
    for (size_t field = 0; field < 5; ++field) {
      const double noise = 1e-9 * static_cast<double>(random() % 1000);
      particles.push_back(std::pow(90.0, static_cast<double>(field)) * (1 + 1e-5 * static_cast<double>(i) + noise));
    }
  }
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

TEST(Guess, KeepsTheLastOneWhereItFits) {
  const ByteVector raw = field_of<double>(200, 300, false);
  const auto guess = guess_numbers(raw, {});
  ASSERT_TRUE(guess);
  EXPECT_EQ(guess_numbers(ByteSpan(raw).subspan(8 * 17, 200'000), guess), guess);
  const auto other = guess_numbers(field_of<double>(200, 300, true), guess);
  ASSERT_TRUE(other);
  EXPECT_EQ(other->type.name(), "F64BE");
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
