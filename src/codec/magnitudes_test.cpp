// Magnitudes: that the kernels for all processors agree, what they cost, and what hostile bytes may not do.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "codec/magnitude_kernels.h"
#include "codec/test_packs.h"

namespace varve {
namespace {

using kernels::kMagnitudeLanes;
using kernels::kMagnitudeScale;
using kernels::kMagnitudeStrands;
using kernels::MagnitudeKernels;
using test::Random;

/// Numbers of up to all their bits, many of them small or zero, and small beside small ones; or all are zero.
ByteVector random_magnitudes(size_t number_bytes, size_t count, Random& random) {
  ByteVector raw(count * number_bytes);
  if (random() % 8 == 0) return raw;
  size_t width = 0;
  for (size_t i = 0; i < count; ++i) {
    if (random() % 8 == 0) width = random() % 3 == 0 ? 0 : random() % (8 * number_bytes + 1);
    std::byte number[8];
    store_le(number, width == 0 ? uint64_t{0} : random() >> (64 - width));
    std::copy_n(number, number_bytes, raw.begin() + static_cast<ptrdiff_t>(i * number_bytes));
  }
  return raw;
}

/// Frequencies of any sort: of all magnitudes that numbers may have, or of those alone that these have.
kernels::MagnitudeTables random_tables(size_t number_bytes, ByteSpan numbers, Random& random) {
  std::vector<uint8_t> magnitudes;
  if (random() % 2 == 0) {
    std::vector<uint8_t> measured(numbers.size() / number_bytes);
    kernels::magnitude_kernels().front().measure(number_bytes, numbers, measured.data());
    magnitudes = std::move(measured);
    std::sort(magnitudes.begin(), magnitudes.end());
    magnitudes.erase(std::unique(magnitudes.begin(), magnitudes.end()), magnitudes.end());
  } else {
    for (size_t i = 0; i < kernels::magnitude_count(number_bytes); ++i) magnitudes.push_back(static_cast<uint8_t>(i));
  }
  kernels::MagnitudeTables tables;
  tables.frequencies.resize(1 + random() % kernels::kMagnitudeTablesMax);
  for (uint8_t& table : tables.table_of) table = static_cast<uint8_t>(random() % tables.frequencies.size());
  for (std::array<uint16_t, 256>& frequencies : tables.frequencies) {
    frequencies.fill(0);
    for (const uint8_t magnitude : magnitudes) frequencies[magnitude] = 1;
    auto left = static_cast<uint32_t>(kMagnitudeScale - magnitudes.size());
    while (left > 0) {
      const auto more = static_cast<uint16_t>(1 + random() % left);
      frequencies[magnitudes[random() % magnitudes.size()]] += more;
      left -= more;
    }
  }
  return tables;
}

/// What a kernel made of a strand, each of its own size, so that a sanitizer sees what is read beyond it.
struct CodedStrand {
  ByteVector code, bits;
  bool operator==(const CodedStrand&) const = default;
};
using CodedStrands = std::array<CodedStrand, kMagnitudeStrands>;

/// With zeros before them, as the kernels want them.
struct Magnitudes {
  std::vector<uint8_t> bytes;
  size_t before;
  Magnitudes(size_t count, size_t distance) : bytes(distance + 1 + count), before(distance + 1) {}
  uint8_t* data() { return bytes.data() + before; }
};

CodedStrands encoded_by(const MagnitudeKernels& kernel, size_t number_bytes, ByteSpan numbers, size_t distance,
                        const kernels::MagnitudeTables& tables) {
  const size_t strand_bytes = numbers.size() / kMagnitudeStrands, count = strand_bytes / number_bytes;
  std::vector<Magnitudes> magnitudes(kMagnitudeStrands, {count, distance});
  std::array<kernels::StrandToEncode, kMagnitudeStrands> strands;
  std::vector<ByteVector> rooms;
  rooms.reserve(2 * strands.size());
  for (size_t i = 0; i < strands.size(); ++i) {
    ByteVector& code = rooms.emplace_back(kernels::code_bytes_max(count));
    ByteVector& bits = rooms.emplace_back(kernels::bits_bytes_max(number_bytes, count));
    strands[i] = {numbers.subspan(i * strand_bytes, strand_bytes), magnitudes[i].data(), code, bits};
    kernel.measure(number_bytes, strands[i].numbers, magnitudes[i].data());
  }
  kernel.encode(number_bytes, strands, distance, tables);
  CodedStrands coded;
  for (size_t i = 0; i < strands.size(); ++i) {
    coded[i] = {ByteVector(strands[i].code.begin(), strands[i].code.end()),
                ByteVector(strands[i].bits.begin(), strands[i].bits.end())};
  }
  return coded;
}

/// Nothing if the kernel refuses it.
std::optional<ByteVector> decoded_by(const MagnitudeKernels& kernel, size_t number_bytes, size_t numbers,
                                     const CodedStrands& coded, size_t distance,
                                     const kernels::MagnitudeTables& tables) {
  ByteVector out(numbers * number_bytes + 1);  // not aligned
  const size_t strand_bytes = numbers * number_bytes / kMagnitudeStrands;
  std::vector<Magnitudes> magnitudes(kMagnitudeStrands, {numbers / kMagnitudeStrands, distance});
  std::array<kernels::StrandToDecode, kMagnitudeStrands> strands;
  for (size_t i = 0; i < strands.size(); ++i) {
    strands[i] = {coded[i].code, coded[i].bits, magnitudes[i].data(),
                  MutableByteSpan(out).subspan(1 + i * strand_bytes, strand_bytes)};
  }
  if (!kernel.decode(number_bytes, strands, distance, tables)) return std::nullopt;
  out.erase(out.begin());
  return out;
}

TEST(MagnitudeKernels, OfAllProcessorsAgreeByteForByteAndInvertEachOther) {
  ASSERT_EQ(kernels::magnitude_kernels().front().name, "plain");
  rc::check([] {
    const size_t number_bytes = *rc::gen::element<size_t>(1, 2, 4, 8);
    const size_t numbers = kernels::kMagnitudeStride * *rc::gen::inRange<size_t>(1, 40);
    const size_t distance = *rc::gen::inRange<size_t>(kernels::kMagnitudeDistanceMin, 200);
    Random random(*rc::gen::arbitrary<uint64_t>());
    const ByteVector raw = random_magnitudes(number_bytes, numbers, random);
    const kernels::MagnitudeTables tables = random_tables(number_bytes, raw, random);
    const CodedStrands wanted = encoded_by(kernels::magnitude_kernels().front(), number_bytes, raw, distance, tables);
    for (const MagnitudeKernels& kernel : kernels::magnitude_kernels()) {
      RC_TAG(std::string(kernel.name));
      RC_ASSERT(encoded_by(kernel, number_bytes, raw, distance, tables) == wanted);
      RC_ASSERT(decoded_by(kernel, number_bytes, numbers, wanted, distance, tables) == raw);
    }
  });
}

TEST(MagnitudeKernels, RefuseOrDecodeAnythingAlike) {
  Random random(1);
  int refused = 0;
  for (const size_t number_bytes : {1, 2, 4, 8}) {
    for (int repeat = 0; repeat < 300; ++repeat) {
      const size_t numbers = kernels::kMagnitudeStride * (1 + random() % 20);
      const size_t distance = kernels::kMagnitudeDistanceMin + random() % 100;
      const ByteVector raw = random_magnitudes(number_bytes, numbers, random);
      const kernels::MagnitudeTables tables = random_tables(number_bytes, raw, random);
      CodedStrands coded = encoded_by(kernels::magnitude_kernels().front(), number_bytes, raw, distance, tables);
      CodedStrand& strand = coded[random() % coded.size()];
      ByteVector& hurt = random() % 2 == 0 ? strand.code : strand.bits;
      switch (random() % 3) {
        case 0: hurt[random() % hurt.size()] ^= static_cast<std::byte>(1 + random() % 255); break;
        case 1: hurt.resize(random() % hurt.size()); break;
        default: hurt.resize(hurt.size() + 1 + random() % 40);
      }
      const auto wanted =
          decoded_by(kernels::magnitude_kernels().front(), number_bytes, numbers, coded, distance, tables);
      refused += wanted ? 0 : 1;
      for (const MagnitudeKernels& kernel : kernels::magnitude_kernels())
        ASSERT_EQ(decoded_by(kernel, number_bytes, numbers, coded, distance, tables), wanted)
            << kernel.name << " " << number_bytes;
    }
  }
  EXPECT_GT(refused, 800);  // of 1,200: a bit of a number itself is nobody's to refuse
}

TEST(MagnitudeKernels, RefuseStatesThatNoEncoderEndsWith) {
  const size_t numbers = 10 * kernels::kMagnitudeStride, distance = kernels::kMagnitudeDistanceMin;
  Random random(5);
  const ByteVector raw = random_magnitudes(4, numbers, random);
  const kernels::MagnitudeTables tables = random_tables(4, raw, random);
  const CodedStrands good = encoded_by(kernels::magnitude_kernels().front(), 4, raw, distance, tables);
  for (const MagnitudeKernels& kernel : kernels::magnitude_kernels()) {
    ASSERT_TRUE(decoded_by(kernel, 4, numbers, good, distance, tables));
    for (const uint32_t state : {0u, (1u << 15) - 1, 1u << 31, 3'000'000'000u, ~0u}) {
      for (size_t lane = 0; lane < kMagnitudeLanes; ++lane) {
        CodedStrands bad = good;
        store_le(bad[lane % 2].code.data() + 4 * lane, state);
        EXPECT_FALSE(decoded_by(kernel, 4, numbers, bad, distance, tables)) << kernel.name << " " << state;
      }
    }
  }
}

const Codec& magnitudes() { return **find_codec("magnitudes"); }
constexpr ElementType kByte{ElementKind::unsigned_integer, ByteOrder::little, 1};
constexpr ElementType kFloat{ElementKind::floating, ByteOrder::little, 4};
constexpr ElementType kDouble{ElementKind::floating, ByteOrder::little, 8};

TEST(Magnitudes, KeepEveryBitOfEveryFloat) {
  test::expect_comes_back_by("lorenzo+magnitudes", test::pack_of_all_kinds<float>());
  test::expect_comes_back_by("lorenzo+magnitudes", test::pack_of_all_kinds<double>());
}

TEST(Magnitudes, OfZerosCostNothing) {
  const ByteVector raw(1 << 20);
  ByteVector params, out, decoded(raw.size(), std::byte{1});
  ASSERT_TRUE(magnitudes().encode(raw, {kDouble, {test::run_of(1 << 17)}}, 0, params, out).ok());
  EXPECT_LT(out.size(), 230u);
  ASSERT_TRUE(magnitudes().decode(out, params, decoded).ok());
  EXPECT_EQ(decoded, raw);
}

TEST(Magnitudes, OfNoiseAreStoredByTheChain) {
  Random random(2);
  const ByteVector raw = test::random_bytes(1 << 16, random);
  EXPECT_TRUE(recipe_is_store(
      encode_chain(*CodecChain::parse("lorenzo+magnitudes"), raw, {kFloat, {test::run_of(1 << 14)}})->recipe));
}

/// Numbers that are small in some columns of their rows and large in others.
ByteVector rows_of_numbers(size_t rows, size_t columns) {
  Random random(3);
  ByteVector raw(rows * columns * 4);
  for (size_t i = 0; i < rows * columns; ++i) {
    const size_t column = i % columns;
    store_le(raw.data() + 4 * i, static_cast<uint32_t>(random() >> (column % 20 < 10 ? 60 : 40)));
  }
  return raw;
}

TEST(Magnitudes, AreToldByTheRowAbove) {
  const ByteVector raw = rows_of_numbers(100, 83);
  const auto encoded_bytes = [&raw](std::vector<uint64_t> dims) {
    ByteVector params, out;
    EXPECT_TRUE(
        magnitudes().encode(raw, {kFloat, {test::run_of(raw.size() / 4, std::move(dims))}}, 0, params, out).ok());
    return out.size();
  };
  // Four bits or 24 of each, and what it is of the two, which a row above tells.
  EXPECT_LT(encoded_bytes({83, 100}), raw.size() / 4 * 14.2 / 8 + 230);
  EXPECT_GT(encoded_bytes({}), raw.size() / 4 * 14.6 / 8);
}

/// 40 numbers of one byte, with a tail of eight.
struct FortyNumbers {
  ByteVector raw, params, body;
  FortyNumbers() {
    for (int i = 0; i < 40; ++i) raw.push_back(static_cast<std::byte>(i % 11 * (i % 3)));
    EXPECT_TRUE(magnitudes().encode(raw, {kByte, {test::run_of(40)}}, 0, params, body).ok());
  }
  StatusCode decode(size_t bytes = 40) const {
    ByteVector out(bytes);
    const Status status = magnitudes().decode(body, params, out);
    EXPECT_TRUE(!status.ok() || out == raw);
    return status.code();
  }
};

TEST(Magnitudes, RefuseParametersThatDoNotFit) {
  ASSERT_EQ(FortyNumbers().decode(), StatusCode::ok);
  for (const size_t bytes : {0, 16, 31, 39, 41, 63, 64}) EXPECT_EQ(FortyNumbers().decode(bytes), StatusCode::corrupt);
  const FortyNumbers good;
  ASSERT_EQ(good.params.size(), 7u);
  for (size_t at = 0; at < good.params.size(); ++at) {
    for (const uint8_t value : {0, 1, 4, 8, 16, 64, 127, 128, 255}) {
      FortyNumbers changed;
      if (changed.params[at] == std::byte{value}) continue;
      changed.params[at] = std::byte{value};
      // Any distance at which the zeros before the numbers are all that it reaches decodes alike.
      if (at == 1) continue;
      EXPECT_EQ(changed.decode(), StatusCode::corrupt) << at << " " << int{value};
    }
  }
  for (const uint8_t distance : {0, 1, 16, 18, 41}) {
    FortyNumbers changed;
    changed.params[1] = std::byte{distance};
    EXPECT_EQ(changed.decode(), StatusCode::corrupt) << int{distance};
  }
  FortyNumbers longer, shorter;
  longer.params.push_back(std::byte{0});
  shorter.params.pop_back();
  EXPECT_EQ(longer.decode(), StatusCode::corrupt);
  EXPECT_NE(shorter.decode(), StatusCode::ok);
}

TEST(Magnitudes, RefuseOrDecodeAnyBytes) {
  Random random(4);
  const FortyNumbers good;
  for (int repeat = 0; repeat < 20'000; ++repeat) {
    FortyNumbers changed = good;
    for (size_t changes = 1 + random() % 3; changes > 0; --changes) {
      ByteVector& bytes = random() % 8 == 0 ? changed.params : changed.body;
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    ByteVector out(40);
    magnitudes().decode(changed.body, changed.params, out).ignore("no more is asked of it than that it ends");
  }
}

}  // namespace
}  // namespace varve
