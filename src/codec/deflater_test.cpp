#include "codec/deflater.h"

#include <gtest/gtest.h>

#ifdef VARVE_TEST_WITH_ZLIB
#include <zlib.h>
#endif

#include <cmath>
#include <cstring>

#include "codec/inflater.h"
#include "codec/test_packs.h"

namespace varve {
namespace {

using test::Random;

/// What programs deflate, and what is hard on the search for matches, on the window's borders, and on the codes.
ByteVector deflated_content(int kind, size_t bytes, Random& random) {
  ByteVector content(bytes);
  const auto any = [&] { return static_cast<std::byte>(random()); };
  const auto one_of = [&](std::string_view letters) {
    return static_cast<std::byte>(letters[random() % letters.size()]);
  };
  switch (kind) {
    case 0:  // noise
      for (std::byte& byte : content) byte = any();
      break;
    case 1:  // runs
      for (size_t i = 0; i < bytes;) {
        const std::byte value = any();
        for (size_t left = random() % 400 + 1; left > 0 && i < bytes; --left) content[i++] = value;
      }
      break;
    case 2:  // text
      for (std::byte& byte : content) byte = one_of("etaoin shrdlu\n");
      break;
    case 3:  // a field
      for (size_t i = 0; i + 8 <= bytes; i += 8) {
        const double value = std::sin(static_cast<double>(i) * 1e-4) + static_cast<double>(random() % 1000) * 1e-9;
        std::memcpy(&content[i], &value, 8);
      }
      break;
    case 4: {  // it repeats from about as far away as a match may be
      const size_t period = 30'000 + random() % 5000;
      for (size_t i = 0; i < bytes; ++i) content[i] = i < period ? any() : content[i - period];
      for (int i = 0; i < 50 && bytes > 0; ++i) content[random() % bytes] = any();
      break;
    }
    case 5: break;  // zeros
    case 6:         // matches of all lengths and distances
      for (size_t i = 0; i < bytes;) {
        if (i < 10 || random() % 3 == 0) {
          const uint64_t values = 1 + random() % 256;
          for (size_t left = random() % 20 + 1; left > 0 && i < bytes; --left)
            content[i++] = static_cast<std::byte>(random() % values);
        } else {
          const size_t distance = 1 + random() % std::min<size_t>(i, random() % 2 == 0 ? 300 : 40'000);
          for (size_t left = 3 + random() % (random() % 5 == 0 ? 300 : 10); left > 0 && i < bytes; --left, ++i)
            content[i] = content[i - distance];
        }
      }
      break;
    case 7:  // values so unlike in number that codes would be longer than they may be
      for (std::byte& byte : content) {
        unsigned value = 0;
        while (value < 250 && (random() & 1) != 0) ++value;
        byte = static_cast<std::byte>(7 * value);
      }
      break;
    default:  // noise and letters by turns
      for (size_t i = 0; i < bytes; ++i) content[i] = i / 20'000 % 2 == 0 ? one_of("abc") : any();
  }
  return content;
}
constexpr int kContentKinds = 9;

ByteVector made(ByteSpan content, DeflateSettings settings) {
  ByteVector out(content.size() + content.size() / 10 + 1000);
  Deflater deflater;
  out.resize(deflater.make(content, settings, out));
  return out;
}

#ifdef VARVE_TEST_WITH_ZLIB
/// By zlib; `piece_bytes`: the content is given in such pieces.
ByteVector made_by_zlib(ByteSpan content, DeflateSettings settings, size_t piece_bytes) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, settings.level, Z_DEFLATED, -15, settings.memory_level, Z_DEFAULT_STRATEGY), Z_OK);
  ByteVector out(content.size() + content.size() / 10 + 1000);
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  for (size_t at = 0; at < content.size(); at += piece_bytes) {
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(content.data())) + at;
    stream.avail_in = static_cast<uInt>(std::min(piece_bytes, content.size() - at));
    if (at + piece_bytes < content.size()) {
      EXPECT_EQ(deflate(&stream, Z_NO_FLUSH), Z_OK);
    }
  }
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

TEST(Deflater, MakesTheBytesOfZlibAtAllLevelsForContentOfAllKinds) {
  const uint64_t seed = 39;
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  for (const size_t bytes : {0,      1,      2,      3,      4,      10,     257,    258,    259,    262,
                             263,    1000,   5000,   32'505, 32'506, 32'507, 32'768, 32'769, 65'273, 65'274,
                             65'275, 65'535, 65'536, 65'537, 98'041, 98'042, 98'304, 140'000}) {
    for (int kind = 0; kind < kContentKinds; ++kind) {
      const ByteVector content = deflated_content(kind, bytes, random);
      for (uint8_t level = 1; level <= 9; ++level) {
        // All memory levels where it is soon done.
        for (uint8_t memory_level = 1; memory_level <= 9; ++memory_level) {
          if (bytes > 5000 && memory_level != 1 + random() % 9 && memory_level != 8) continue;
          const DeflateSettings settings{level, memory_level};
          ASSERT_EQ(made(content, settings), made_by_zlib(content, settings, bytes + 1))
              << "kind " << kind << " bytes " << bytes << " level " << +level << " memory level " << +memory_level;
        }
      }
    }
  }
}

TEST(Deflater, MakesTheSameOfSeveralMebibytes) {
  Random random(40);
  for (int kind = 0; kind < kContentKinds; ++kind) {
    const ByteVector content = deflated_content(kind, 2'500'000, random);
    for (const DeflateSettings settings : {DeflateSettings{1, 8}, DeflateSettings{4, 9}, DeflateSettings{6, 8}})
      ASSERT_EQ(made(content, settings), made_by_zlib(content, settings, SIZE_MAX)) << "kind " << kind;
  }
}

TEST(Deflater, MakesTheSameWhateverPiecesZlibWasGiven) {
  Random random(41);
  for (int kind = 0; kind < kContentKinds; ++kind) {
    const ByteVector content = deflated_content(kind, 150'000 + random() % 1000, random);
    for (const size_t piece_bytes : {size_t{1000}, size_t{4096}, size_t{8192}, size_t{16'384}, 1 + random() % 70'000}) {
      const DeflateSettings settings{static_cast<uint8_t>(1 + random() % 9), 8};
      ASSERT_EQ(made(content, settings), made_by_zlib(content, settings, piece_bytes))
          << "kind " << kind << " pieces of " << piece_bytes << " level " << +settings.level;
    }
  }
}
#endif

TEST(Deflater, MakesWhatInflatesToTheContent) {
  Random random(42);
  for (int kind = 0; kind < kContentKinds; ++kind) {
    const ByteVector content = deflated_content(kind, random() % 100'000, random);
    const ByteVector stream = made(content, {static_cast<uint8_t>(1 + random() % 9), 8});
    ByteVector inflated(3);
    const Inflated found = inflate(stream, content.size(), inflated);
    EXPECT_EQ(found.end, Inflated::End::whole);
    EXPECT_EQ(found.in_bytes, stream.size());
    inflated.erase(inflated.begin(), inflated.begin() + 3);
    EXPECT_EQ(inflated, content) << kind;
  }
}

TEST(Deflater, MakesTheFrontOfAStreamWithoutTheRest) {
  Random random(43);
  const ByteVector content = deflated_content(3, 200'000, random);
  const ByteVector stream = made(content, {});
  Deflater deflater;
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{1000}, stream.size() - 1, stream.size()}) {
    ByteVector out(bytes);
    EXPECT_EQ(deflater.make(content, {}, out), bytes);
    EXPECT_TRUE(std::equal(out.begin(), out.end(), stream.begin()));
  }
}

TEST(Deflater, SaysHowFarAStreamAgrees) {
  Random random(44);
  const ByteVector content = deflated_content(3, 300'000, random);
  ByteVector stream = made(content, {});
  Deflater deflater;
  Deflater::Agreement agreement = deflater.compare(content, {}, stream);
  EXPECT_TRUE(agreement.whole);
  EXPECT_EQ(agreement.bytes, stream.size());
  EXPECT_EQ(agreement.content_bytes, content.size());
  const size_t changed = stream.size() * 2 / 3;
  stream[changed] ^= std::byte{1};
  agreement = deflater.compare(content, {}, stream);
  EXPECT_FALSE(agreement.whole);
  EXPECT_EQ(agreement.bytes, changed);
  EXPECT_GT(agreement.content_bytes, 0u);
  EXPECT_LT(agreement.content_bytes, content.size());
  // What is beyond what the whole blocks needed has no say in them.
  const ByteSpan front = ByteSpan(content).first(agreement.content_bytes + 1024);
  EXPECT_GT(deflater.compare(front, {}, ByteSpan(stream).first(changed)).content_bytes, agreement.content_bytes - 1);
}

TEST(Inflater, TellsWhatIsCutFromWhatIsDamaged) {
  Random random(45);
  const ByteVector content = deflated_content(2, 100'000, random);
  ByteVector stream = made(content, {});
  ByteVector out;
  const Inflated cut = inflate(ByteSpan(stream).first(stream.size() / 2), SIZE_MAX / 2, out);
  EXPECT_EQ(cut.end, Inflated::End::cut);
  EXPECT_EQ(cut.first_block_symbols, deflate_block_symbols(8));
  EXPECT_GT(out.size(), content.size() / 4);
  EXPECT_TRUE(std::equal(out.begin(), out.end(), content.begin()));
  out.clear();
  EXPECT_EQ(inflate(stream, 1000, out).end, Inflated::End::cut);
  EXPECT_LE(out.size(), 1000u);
  stream[0] |= std::byte{6};  // no such kind of block
  out.clear();
  EXPECT_EQ(inflate(stream, SIZE_MAX / 2, out).end, Inflated::End::damaged);
}

/// `stream` in pieces of any sizes.
InflateStream::MoreInput pieces_of(const ByteVector& stream, size_t& at) {
  return [&stream, &at](MutableByteSpan into) -> Result<size_t> {
    const size_t bytes = std::min(into.size(), stream.size() - at);
    std::copy_n(stream.begin() + static_cast<ptrdiff_t>(at), bytes, into.begin());
    at += bytes;
    return bytes;
  };
}

TEST(InflateStream, GivesTheContentInPiecesOfAnySize) {
  const uint64_t seed = 47;
  Random random(seed);
  for (int kind = 0; kind < kContentKinds; ++kind) {
    for (const size_t size : {size_t{0}, random() % 1000, 500'000 + random() % 1'000'000}) {
      const ByteVector content = deflated_content(kind, size, random);
      ByteVector stream = made(content, {static_cast<uint8_t>(1 + random() % 9), 8});
      stream.resize(stream.size() + random() % 3000, std::byte{0xff});  // what follows it is not looked at
      size_t at = 0;
      InflateStream inflating(pieces_of(stream, at));
      ByteVector inflated(content.size());
      for (MutableByteSpan rest = inflated; !rest.empty();) {
        const MutableByteSpan piece = rest.first(std::min<size_t>(rest.size(), 1 + random() % 200'000));
        const Status read = inflating.read(piece);
        ASSERT_TRUE(read.ok()) << read.to_string();
        rest = rest.subspan(piece.size());
      }
      EXPECT_EQ(inflated, content) << kind;
      std::byte more{};
      EXPECT_EQ(inflating.read({&more, 1}).code(), StatusCode::corrupt);
    }
  }
}

TEST(InflateStream, GivesAsMuchOfADamagedStreamAsIsFoundAtOnce) {
  const uint64_t seed = 48;
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  size_t whole = 0;
  for (int repeat = 0; repeat < 2000; ++repeat) {
    ByteVector stream = made(deflated_content(static_cast<int>(random() % kContentKinds), random() % 3000, random),
                             {static_cast<uint8_t>(1 + random() % 9), 1});
    for (uint64_t flips = random() % 4; flips > 0; --flips)
      stream[random() % stream.size()] ^= static_cast<std::byte>(1U << random() % 8);
    stream.resize(random() % 2 == 0 ? stream.size() : random() % (stream.size() + 1));
    ByteVector out;
    const Inflated found = inflate(stream, 10'000'000, out);
    size_t at = 0;
    InflateStream inflating(pieces_of(stream, at));
    ByteVector same(out.size());
    if (found.end == Inflated::End::whole) {
      ASSERT_TRUE(inflating.read(same).ok());
      ASSERT_EQ(same, out);
      ++whole;
    }
    same.resize(out.size() + 1);
    ASSERT_EQ(InflateStream(pieces_of(stream, at = 0)).read(same).code(), StatusCode::corrupt);
  }
  EXPECT_GT(whole, 200u);
}

TEST(InflateStream, PassesTheInputsFailureOn) {
  InflateStream inflating([](MutableByteSpan) -> Result<size_t> { return Status::io_error("a bad disk"); });
  std::byte byte{};
  EXPECT_EQ(inflating.read({&byte, 1}).message(), "a bad disk");
}

TEST(Inflater, TakesAnyBytesWithinItsBounds) {
  const uint64_t seed = 46;
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  for (int repeat = 0; repeat < 3000; ++repeat) {
    ByteVector stream = made(deflated_content(static_cast<int>(random() % kContentKinds), random() % 3000, random),
                             {static_cast<uint8_t>(1 + random() % 9), 1});
    for (uint64_t flips = random() % 4; flips > 0; --flips)
      stream[random() % stream.size()] ^= static_cast<std::byte>(1U << random() % 8);
    stream.resize(random() % (stream.size() + 1));
    ByteVector out;
    const size_t out_bytes_max = random() % 6000;
    const Inflated found = inflate(stream, out_bytes_max, out);
    ASSERT_LE(out.size(), out_bytes_max);
    ASSERT_LE(found.in_bytes, stream.size());
  }
}

}  // namespace
}  // namespace varve
