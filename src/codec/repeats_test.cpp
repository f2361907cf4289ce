#include "codec/repeats.h"

#include <gtest/gtest.h>

#include <random>

#include "codec/chooser.h"

namespace varve {
namespace {

ByteVector noise_of(size_t bytes, unsigned seed) {
  std::mt19937_64 random(seed);
  ByteVector noise(bytes);
  for (std::byte& byte : noise) byte = static_cast<std::byte>(random());
  return noise;
}

ByteVector concatenated(std::initializer_list<ByteSpan> parts) {
  ByteVector all;
  for (const ByteSpan part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

TEST(Repeats, TellsHowLargePacksHaveToBe) {
  const ByteVector piece = noise_of(3_MiB, 1), other = noise_of(40'008, 2);
  Repeats repeats(8, kLongWindowBytes, 9_MiB, 8_KiB);
  for (int i = 0; i < 3; ++i) {
    repeats.add(piece);
    repeats.add(other);  // so that chunks are cut elsewhere
  }
  EXPECT_NEAR(repeats.share(), 2.0 / 3, 0.1);
  EXPECT_EQ(repeats.pack_bytes_wanted(1_MiB, 32_MiB), 32_MiB);
  EXPECT_EQ(repeats.pack_bytes_wanted(1_MiB, 8_MiB), 8_MiB);
}

TEST(Repeats, DoNotCountWhatIsNear) {
  const ByteVector piece = noise_of(64_KiB, 1), other = noise_of(1000, 2);
  Repeats repeats(1, kLongWindowBytes, 3_MiB, 8_KiB);
  for (int i = 0; i < 40; ++i) {
    repeats.add(piece);
    repeats.add(other);
  }
  EXPECT_GT(repeats.share(), 0.8);
  EXPECT_EQ(repeats.pack_bytes_wanted(1_MiB, 32_MiB), 0U);
}

TEST(Repeats, DoNotCountKnownChunksNorConstantsNorNoise) {
  const ByteVector piece = noise_of(4_MiB, 1);
  Repeats known(8, kLongWindowBytes, 8_MiB, 8_KiB);
  known.add(piece);
  known.begin_chunks();
  known.add(piece);
  EXPECT_EQ(known.pack_bytes_wanted(1_MiB, 32_MiB), 0U);

  Repeats constant(4, kShortWindowBytes, 4_MiB);
  constant.add(ByteVector(4_MiB, std::byte{7}));
  EXPECT_EQ(constant.share(), 0);

  Repeats noise(2, kShortWindowBytes, 4_MiB);
  noise.add(piece);
  EXPECT_EQ(noise.share(), 0);
}

TEST(Repeats, TellWhichEarlierPartHoldsWhatComesAgain) {
  const ByteVector first = noise_of(1_MiB, 1), second = noise_of(1_MiB, 2), own = noise_of(128_KiB, 3);
  const ByteSpan half = ByteSpan(second).subspan(200'008, 256_KiB);
  Repeats repeats(8, kShortestWindowBytes, 3_MiB, 8_KiB);
  repeats.add(first);
  repeats.begin_part();
  repeats.add(second);
  EXPECT_EQ(repeats.share_in_part(0), 0);
  repeats.begin_part();
  // What a part has twice is not the other's.
  for (const ByteSpan part : {half, ByteSpan(own), ByteSpan(own)}) repeats.add(part);
  EXPECT_EQ(repeats.share_in_part(0), 0);
  EXPECT_NEAR(repeats.share_in_part(1), 0.5, 0.15);
}

TEST(Repeats, AreFoundInOneLargePack) {
  const ByteVector piece = noise_of(1_MiB, 1);
  const ByteVector raw = concatenated({piece, noise_of(2_MiB + 8, 2), piece, noise_of(8, 3), piece});
  for (const Effort effort : {Effort::balanced, Effort::best}) {
    for (const ElementType& type : {ElementType{}, ElementType{ElementKind::floating, ByteOrder::little, 8}}) {
      const PackShape shape{.type = type, .runs = {{raw.size() / type.bytes, {}, false}}};
      const auto encoded = make_encoder({.effort = effort, .chain = {}})->encode(raw, shape);
      ASSERT_TRUE(encoded.ok());
      EXPECT_LT(encoded->body.size(), raw.size() - 2_MiB + 50'000);
      ByteVector back(raw.size());
      ASSERT_TRUE(decode_chain(encoded->recipe, encoded->body, back).ok());
      EXPECT_EQ(back, raw);
    }
  }
}

TEST(Repeats, MarkAnchorsAsTheyAreDefined) {
  std::mt19937_64 random(3);
  for (int turn = 0; turn < 200; ++turn) {
    const size_t marks = 1 + random() % 40;
    const size_t offset = random() % 64;
    const int bits = 1 + static_cast<int>(random() % 12);
    const ByteVector bytes = noise_of(offset + marks * kernels::kMarkedBytes + 8, static_cast<unsigned>(turn));
    std::vector<uint32_t> fast(marks, ~0U), plain(marks);
    kernels::mark_byte_anchors(bytes.data() + offset, bits, fast);
    kernels::mark_byte_anchors_plain(bytes.data() + offset, bits, plain);
    ASSERT_EQ(fast, plain) << "bits " << bits;
  }
}

TEST(Repeats, LookAtFewerBytesOfMore) {
  // A piece of which a small part alone comes again, and one that comes again whole, in files of any size.
  for (const uint64_t bytes : {1_MiB, 8_MiB, 24_MiB}) {
    const ByteVector piece = noise_of(bytes / 2, 1);
    Repeats all(1, kLongWindowBytes, bytes, 8_KiB), some(1, kLongWindowBytes, bytes, 8_KiB);
    for (const size_t again : {size_t{0}, piece.size() - 13}) {
      all.add(ByteSpan(piece).subspan(again == 0 ? 0 : 13));
      some.add(again == 0 ? ByteSpan(piece) : ByteSpan(noise_of(again, 2)));
      if (again != 0) some.add(ByteSpan(piece).first(piece.size() / 10));
    }
    EXPECT_NEAR(all.share(), 0.5, 0.1) << bytes;  // some are forgotten
    EXPECT_NEAR(some.share(), 0.05, 0.03) << bytes;
  }
}

}  // namespace
}  // namespace varve
