#include "codec/chunk_formats.h"

#include <gtest/gtest.h>

#ifdef VARVE_TEST_WITH_ZLIB
#include <zlib.h>
#endif
#ifdef VARVE_TEST_WITH_BLOSC
#include <blosc.h>
#endif

#include <cstring>

#include "codec/codec.h"
#include "codec/test_packs.h"

namespace varve {
namespace {

using test::Random;

/// Numbers that have something in common, between noise.
ByteVector some_numbers(size_t bytes, Random& random) {
  ByteVector content(bytes);
  uint32_t value = 1000;
  for (size_t i = 0; i + 4 <= bytes; i += 4) {
    value += random() % 50;
    if (random() % 1000 == 0) value = static_cast<uint32_t>(random());
    std::memcpy(&content[i], &value, 4);
  }
  return content;
}

using Decode = Status (*)(ByteSpan, MutableByteSpan);

void expect_decodes(Decode decode, const ByteVector& encoded, const ByteVector& content) {
  ByteVector decoded(content.size());
  const Status status = decode(encoded, decoded);
  ASSERT_TRUE(status.ok()) << status.to_string();
  ASSERT_EQ(decoded, content);
  for (const size_t other : {content.size() + 1, content.size() - std::min<size_t>(content.size(), 1)}) {
    ByteVector out(other);
    EXPECT_TRUE(other == content.size() || !decode(encoded, out).ok());
  }
}

/// Whatever becomes of it, it stays within its bounds.
void expect_survives(Decode decode, const ByteVector& whole, size_t content_bytes, Random& random) {
  for (int i = 0; i < 60; ++i) {
    ByteVector damaged = whole;
    if (i % 3 == 0) damaged.resize(random() % whole.size());
    for (uint64_t flips = i % 3 == 0 ? 0 : 1 + random() % 3; flips > 0; --flips)
      damaged[random() % std::min<size_t>(damaged.size(), i % 3 == 1 ? 32 : damaged.size())] ^=
          static_cast<std::byte>(1U << random() % 8);
    ByteVector out(content_bytes);
    const Status status = decode(damaged, out);
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::corrupt || status.code() == StatusCode::unsupported)
        << status.to_string();
  }
}

#ifdef VARVE_TEST_WITH_ZLIB
TEST(ChunkFormats, ZlibsStreamsAreDecoded) {
  Random random(1);
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{4000}, size_t{1'000'000}}) {
    const ByteVector content = some_numbers(bytes, random);
    for (const int level : {0, 1, 6, 9}) {
      uLongf size = compressBound(bytes);
      ByteVector stream(size);
      ASSERT_EQ(compress2(reinterpret_cast<Bytef*>(stream.data()), &size,
                          reinterpret_cast<const Bytef*>(content.data()), bytes, level),
                Z_OK);
      stream.resize(size);
      expect_decodes(decode_zlib, stream, content);
      expect_survives(decode_zlib, stream, bytes, random);
    }
  }
}
#endif

#ifdef VARVE_TEST_WITH_BLOSC
TEST(ChunkFormats, FramesOfBloscAreDecodedHoweverTheyWereMade) {
  Random random(2);
  std::vector<const char*> compressors = {"zstd", "zlib"};
  if (find_codec(CodecNumber::lz4).ok()) compressors.insert(compressors.end(), {"lz4", "lz4hc"});
  for (const char* const compressor : compressors) {
    for (const int shuffled : {BLOSC_NOSHUFFLE, BLOSC_SHUFFLE, BLOSC_BITSHUFFLE}) {
      for (const size_t element_bytes : {1, 2, 4, 7, 8, 16, 24}) {
        for (const size_t bytes : {size_t{0}, size_t{30}, size_t{5000}, 100'000 + random() % 50'000}) {
          SCOPED_TRACE(testing::Message() << compressor << " " << shuffled << " " << element_bytes << " " << bytes);
          const ByteVector content = some_numbers(bytes, random);
          ByteVector frame(bytes + BLOSC_MAX_OVERHEAD);
          const int size = blosc_compress_ctx(5, shuffled, element_bytes, bytes, content.data(), frame.data(),
                                              frame.size(), compressor, 0, 1);
          ASSERT_GT(size, 0);
          frame.resize(static_cast<size_t>(size));
          expect_decodes(decode_blosc, frame, content);
          expect_survives(decode_blosc, frame, bytes, random);
        }
      }
    }
  }
}

TEST(ChunkFormats, FramesOfBloscByWhatIsNotKnownAreRefusedByItsName) {
  Random random(3);
  const ByteVector content = some_numbers(10'000, random);
  ByteVector frame(content.size() + BLOSC_MAX_OVERHEAD), out(content.size());
  const int size = blosc_compress_ctx(5, BLOSC_SHUFFLE, 4, content.size(), content.data(), frame.data(), frame.size(),
                                      "blosclz", 0, 1);
  ASSERT_GT(size, 0);
  frame.resize(static_cast<size_t>(size));
  const Status status = decode_blosc(frame, out);
  EXPECT_EQ(status.code(), StatusCode::unsupported);
  EXPECT_NE(status.message().find("blosclz"), std::string_view::npos);
}
#endif

}  // namespace
}  // namespace varve
