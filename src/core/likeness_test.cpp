#include "core/likeness.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace varve {
namespace {

ByteVector bytes_of(std::string_view text) { return {as_bytes(text).begin(), as_bytes(text).end()}; }

TEST(Likeness, GivesBackWhatItWasTold) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int turn = 0; turn < 2000; ++turn) {
    // Few letters, so that much is found somewhere else, too.
    const auto some = [&](size_t most) {
      ByteVector bytes(random() % (most + 1));
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() % (turn % 3 == 0 ? 256 : 2));
      return bytes;
    };
    const Likeness likeness(some(100));
    ByteVector bytes = likeness.pattern();
    for (int edit = 0; edit < turn % 4; ++edit) {
      const auto at = static_cast<ptrdiff_t>(random() % (bytes.size() + 1));
      const auto cut = std::min<ptrdiff_t>(std::ssize(bytes) - at, random() % 20);
      bytes.erase(bytes.begin() + at, bytes.begin() + at + cut);
      const ByteVector fresh = some(20);
      bytes.insert(bytes.begin() + at, fresh.begin(), fresh.end());
    }
    const Result<ByteVector> again = likeness.restore(likeness.difference(bytes));
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    ASSERT_EQ(*again, bytes);
  }
}

TEST(Likeness, TellsLittleOfWhatIsAlike) {
  std::string pattern(1000, 'x');
  for (size_t i = 0; i < pattern.size(); ++i) pattern[i] = static_cast<char>('a' + i * i % 23);
  const Likeness likeness(bytes_of(pattern));
  EXPECT_EQ(likeness.difference({}).size(), 0u);
  EXPECT_LE(likeness.difference(likeness.pattern()).size(), 5u);
  std::string other = pattern;
  other[500] = '!';
  EXPECT_LE(likeness.difference(as_bytes(other)).size(), 10u);
  other.insert(200, "0123456789");
  EXPECT_LE(likeness.difference(as_bytes(other)).size(), 25u);
  other = std::string(1000, '-');
  EXPECT_LE(likeness.difference(as_bytes(other)).size(), 1004u);
}

TEST(Likeness, RefusesWhatIsNoDifference) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const Likeness likeness(bytes_of("what all ranks say is much alike, but for a number: 0"));
  const ByteVector difference = likeness.difference(as_bytes("what all ranks say is much alike, but for a number: 1"));
  for (size_t bytes = 1; bytes < difference.size(); ++bytes)
    EXPECT_FALSE(likeness.restore(ByteSpan(difference).first(bytes)).ok()) << bytes;
  for (int turn = 0; turn < 20000; ++turn) {
    ByteVector garbled = difference;
    for (int edit = 0; edit < 3; ++edit) garbled[random() % garbled.size()] = static_cast<std::byte>(random() % 256);
    const Result<ByteVector> restored = likeness.restore(garbled);
    if (!restored.ok()) {
      EXPECT_EQ(restored.status().code(), StatusCode::corrupt);
    }
  }
}

TEST(AlikeBytes, GivesEachBackByItsNumber) {
  AlikeBytes alike;
  for (int i = 0; i < 100; ++i) alike.add(as_bytes(i % 7 == 3 ? std::string() : "rank " + std::to_string(i)));
  ASSERT_EQ(alike.size(), 100u);
  for (int i = 99; i >= 0; --i)
    EXPECT_EQ(as_text(alike.at(static_cast<size_t>(i))), i % 7 == 3 ? std::string() : "rank " + std::to_string(i));
}

}  // namespace
}  // namespace varve
