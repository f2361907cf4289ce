// Tables of numbers in text: the filter that lays their columns apart.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "codec/chooser.h"
#include "codec/codec.h"
#include "codec/test_packs.h"

namespace varve {
namespace {

using test::Random;

/// As many programs write it: names and numbers of different lengths, blanks before, between and behind them.
std::string random_line(Random& random, size_t words) {
  std::string line(random() % 3, ' ');
  for (size_t i = 0; i < words; ++i) {
    if (i > 0) line += std::string(1 + random() % 4 / 3, ' ');
    line += i == 0 ? "atom" + std::to_string(random() % 100)
                   : std::to_string(static_cast<double>(random() % 2'000'000) / 1e3 - 1000);
  }
  return line + std::string(random() % 8 == 0 ? random() % 3 : 0, ' ') + "\n";
}

std::string random_text(Random& random) {
  std::string text;
  for (size_t tables = random() % 5; tables > 0; --tables) {
    const size_t words = 1 + random() % 70;
    for (size_t lines = random() % 60; lines > 0; --lines) text += random_line(random, words);
    switch (random() % 5) {
      case 0: text += "\n\n"; break;
      case 1: text += std::string(300, ' ') + "far\n"; break;
      case 2: text += std::string(100, 'w') + " long\n"; break;
      case 3: text += as_text(test::random_bytes(random() % 200, random)); break;
      default: text += "ITEM: ATOMS id type\n";
    }
  }
  // Packs begin and end anywhere.
  const size_t begin = text.empty() ? 0 : random() % text.size();
  return text.substr(begin, random() % (text.size() - begin + 1));
}

const Codec& columns() { return **find_codec(CodecNumber::columns); }

TEST(Columns, ReturnsAnyText) {
  for (uint32_t seed = 0; seed < 400; ++seed) {
    Random random(seed);
    const std::string text = random_text(random);
    ByteVector params, encoded, decoded(text.size());
    ASSERT_TRUE(columns().encode(as_bytes(text), {}, 0, params, encoded).ok());
    const Status status = columns().decode(encoded, params, decoded);
    ASSERT_TRUE(status.ok()) << seed << ": " << status.to_string();
    ASSERT_EQ(as_text(decoded), text) << seed;
    // Damaged, it gives an error or other text, and nothing outside of it.
    if (encoded.empty()) continue;
    for (int repeat = 0; repeat < 20; ++repeat) {
      ByteVector damaged = encoded;
      damaged[random() % std::min<size_t>(damaged.size(), 1 + random() % 300)] ^=
          static_cast<std::byte>(1u << random() % 8);
      if (random() % 4 == 0) damaged.resize(random() % damaged.size());
      columns().decode(damaged, params, decoded).ignore("either answer will do");
    }
  }
}

TEST(Columns, GrowsNoTextBeyondWhatAStageMayHave) {
  Random random(1);
  // The longest word of each column is in one line alone.
  std::string text;
  for (int line = 0; line < 2000; ++line) {
    for (int word = 0; word < 10; ++word) text += (line % 200 == word ? std::string(64, '9') : "1") + " ";
    text += "\n";
  }
  ByteVector params, encoded;
  ASSERT_TRUE(columns().encode(as_bytes(text), {}, 0, params, encoded).ok());
  EXPECT_LE(encoded.size(), 2 * text.size());
}

TEST(Columns, IsChosenForTablesOfNumbersAlone) {
  Random random(2);
  std::string table, prose;
  std::normal_distribution<double> value(50, 20);
  for (int line = 0; table.size() < 500'000; ++line) {
    table += std::to_string(line) + " 1 " + std::to_string(value(random)) + " " + std::to_string(value(random)) + "\n";
    prose += "the quick brown fox number " + std::to_string(line % 7) + " jumps over the lazy dog\n";
  }
  const auto chain_of = [](const std::string& text) {
    const PackShape shape{{}, {test::run_of(text.size())}};
    const EncodedBytes encoded =
        *make_encoder({.effort = Effort::balanced, .chain = {}})->encode(as_bytes(text), shape);
    return recipe_name(encoded.recipe).value();
  };
  EXPECT_EQ(chain_of(table), "columns+zstd");
  EXPECT_EQ(chain_of(prose).find("columns"), std::string::npos);
  const PackShape shape{{}, {test::run_of(table.size())}};
  const EncodedBytes by_columns = *encode_chain(*CodecChain::parse("columns+zstd"), as_bytes(table), shape);
  const EncodedBytes best_without = *encode_chain(*CodecChain::parse("lzma:6"), as_bytes(table), shape);
  EXPECT_LT(by_columns.body.size(), best_without.body.size());
}

}  // namespace
}  // namespace varve
