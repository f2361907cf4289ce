#include "snapshot/image_copy.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>

#include "hash/score.h"

namespace varve {
namespace {

ByteVector random_bytes(size_t bytes, std::mt19937_64& random) {
  ByteVector out(bytes);
  for (std::byte& byte : out) byte = static_cast<std::byte>(random());
  return out;
}

TEST(CopyKernel, EveryVersionCopiesAndSumsAsThePlainOne) {
  std::mt19937_64 random(7);
  const ByteVector source = random_bytes(70'000, random);
  for (const CopyKernel& kernel : copy_kernels()) {
    for (int round = 0; round < 3000; ++round) {
      const size_t begin = random() % 300;
      const size_t bytes = round < 1500 ? random() % 1200 : random() % (source.size() - begin);
      const size_t to = random() % 130;
      const auto seed = static_cast<uint32_t>(random());
      ByteVector copy(to + bytes + 64, std::byte{0xaa});
      const ByteSpan from = ByteSpan(source).subspan(begin, bytes);
      const uint32_t sum = kernel.copy_with_crc(copy.data() + to, from.data(), bytes, seed);
      store_fence();
      ASSERT_EQ(sum, crc32c(from, seed)) << kernel.name << ", " << bytes << " bytes, seed " << seed;
      ASSERT_TRUE(std::equal(from.begin(), from.end(), copy.begin() + static_cast<long>(to))) << kernel.name;
      auto untouched = [](std::byte byte) { return byte == std::byte{0xaa}; };
      ASSERT_TRUE(std::all_of(copy.begin(), copy.begin() + static_cast<long>(to), untouched)) << kernel.name;
      ASSERT_TRUE(std::all_of(copy.end() - 64, copy.end(), untouched)) << kernel.name;
    }
  }
}

TEST(CopyKernel, KnowsTheCheckValueOfTheStandard) {
  const ByteSpan text = as_bytes("123456789");
  ByteVector copy(text.size());
  EXPECT_EQ(copy_with_crc(copy.data(), text, 0), 0xe3069283U);
  EXPECT_EQ(copy_with_crc(copy.data(), {}, 5), 5U);
}

TEST(CopyTeam, DoesEveryPieceOnceInEveryRound) {
  CopyTeam team(4);
  for (uint64_t count = 0; count < 300; ++count) {
    std::vector<uint32_t> done(count);  // by one thread each, or the thread sanitizer complains
    team.run(count, [&](uint64_t piece) { ++done[piece]; });
    ASSERT_TRUE(std::all_of(done.begin(), done.end(), [](uint32_t times) { return times == 1; }));
  }
}

TEST(CopyTeam, WorksAlone) {
  CopyTeam team(0);
  uint64_t sum = 0;
  team.run(10, [&](uint64_t piece) { sum += piece; });
  EXPECT_EQ(sum, 45U);
}

TEST(CopyTeam, HelpersTakePart) {
  CopyTeam team(2);
  std::atomic<uint32_t> inside{0};
  // Each piece waits for the other: one thread alone would never end.
  team.run(2, [&](uint64_t) {
    inside.fetch_add(1);
    while (inside.load() < 2) std::this_thread::yield();
  });
  EXPECT_EQ(inside.load(), 2U);
}

}  // namespace
}  // namespace varve
