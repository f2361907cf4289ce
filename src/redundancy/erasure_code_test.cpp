#include "redundancy/erasure_code.h"

#include <gtest/gtest.h>
#include <isa-l/erasure_code.h>

#include <algorithm>
#include <array>
#include <random>

namespace varve {
namespace {

struct CodeSize {
  uint32_t data, parity;
};
const CodeSize kSizes[] = {{1, 1}, {2, 1}, {4, 1}, {7, 1}, {2, 2}, {3, 2}, {4, 2}, {5, 3}, {1, 4}, {8, 8}, {10, 6}};

std::vector<ByteVector> random_blocks(size_t count, size_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<ByteVector> blocks(count, ByteVector(bytes));
  for (ByteVector& block : blocks) {
    for (std::byte& each : block) each = static_cast<std::byte>(random());
  }
  return blocks;
}

/// Data blocks and their parity, as one list of parts.
std::vector<ByteVector> encoded(const ErasureCode& code, size_t bytes, uint64_t seed) {
  std::vector<ByteVector> parts = random_blocks(code.parts(), bytes, seed);
  const std::vector<ByteSpan> data(parts.begin(), parts.begin() + code.data_parts());
  const std::vector<MutableByteSpan> parity(parts.begin() + code.data_parts(), parts.end());
  const Status status = code.encode(data, parity);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return parts;
}

/// The same, byte by byte as FORMAT.md says it: the plain twin of what multiplies whole blocks.
std::vector<ByteVector> encoded_plainly(const ErasureCode& code, size_t bytes, uint64_t seed) {
  std::vector<ByteVector> parts = random_blocks(code.parts(), bytes, seed);
  for (uint32_t row = code.data_parts(); row < code.parts(); ++row) {
    std::fill(parts[row].begin(), parts[row].end(), std::byte{0});
    for (uint32_t column = 0; column < code.data_parts(); ++column) {
      const uint8_t factor = code.parity_parts() == 1 ? 1 : galois_inverse(static_cast<uint8_t>(row ^ column));
      for (size_t i = 0; i < bytes; ++i)
        parts[row][i] ^= std::byte{galois_product(factor, static_cast<uint8_t>(parts[column][i]))};
    }
  }
  return parts;
}

TEST(GaloisField, IsAField) {
  for (uint32_t a = 1; a < 256; ++a) {
    const auto element = static_cast<uint8_t>(a);
    EXPECT_EQ(galois_product(element, galois_inverse(element)), 1);
    EXPECT_EQ(galois_product(element, 1), a);
    EXPECT_EQ(galois_product(element, 0), 0);
    for (uint32_t b = 1; b < 256; b += 7) {
      const auto other = static_cast<uint8_t>(b);
      EXPECT_EQ(galois_product(element, other), galois_product(other, element));
      EXPECT_EQ(galois_product(element, static_cast<uint8_t>(b ^ 0x53)),
                galois_product(element, other) ^ galois_product(element, 0x53));
    }
  }
  EXPECT_EQ(galois_product(0x80, 2), 0x1d);
}

TEST(ErasureCode, RefusesImpossibleSizes) {
  for (const CodeSize& size : {CodeSize{0, 1}, {1, 0}, {0, 0}, {254, 2}, {UINT32_MAX, 1}, {1, UINT32_MAX}}) {
    EXPECT_EQ(ErasureCode::create(size.data, size.parity).status().code(), StatusCode::invalid_argument);
  }
  EXPECT_TRUE(ErasureCode::create(254, 1).ok());
  EXPECT_TRUE(ErasureCode::create(1, 254).ok());
}

TEST(ErasureCode, WithOneParityPartIsExclusiveOr) {
  const ErasureCode code = ErasureCode::create(5, 1).value();
  const std::vector<ByteVector> parts = encoded(code, 1000, 1);
  for (size_t i = 0; i < parts[0].size(); ++i) {
    EXPECT_EQ(parts[0][i] ^ parts[1][i] ^ parts[2][i] ^ parts[3][i] ^ parts[4][i], parts[5][i]);
  }
}

TEST(ErasureCode, AgreesWithItsPlainTwin) {
  for (const CodeSize& size : kSizes) {
    const ErasureCode code = ErasureCode::create(size.data, size.parity).value();
    for (size_t bytes : {0, 1, 15, 16, 31, 32, 33, 63, 64, 65, 255, 1000, 16384, 16385, 50'001}) {
      EXPECT_EQ(encoded(code, bytes, bytes), encoded_plainly(code, bytes, bytes)) << size.data << '+' << size.parity;
    }
  }
}

TEST(ErasureCode, HasTheMatrixOfIsal) {
  for (const CodeSize& size : {CodeSize{3, 2}, {4, 2}, {10, 6}, {127, 128}}) {
    std::vector<uint8_t> matrix(size_t{size.data} * (size.data + size.parity));
    ::gf_gen_cauchy1_matrix(matrix.data(), static_cast<int>(size.data + size.parity), static_cast<int>(size.data));
    const ErasureCode code = ErasureCode::create(size.data, size.parity).value();
    // The parity of a one in one data part and zeros in the others is that part's column.
    for (uint32_t column = 0; column < size.data; ++column) {
      std::vector<ByteVector> parts(code.parts(), ByteVector(1));
      parts[column][0] = std::byte{1};
      const std::vector<ByteSpan> data(parts.begin(), parts.begin() + size.data);
      const std::vector<MutableByteSpan> parity(parts.begin() + size.data, parts.end());
      ASSERT_TRUE(code.encode(data, parity).ok());
      for (uint32_t row = size.data; row < code.parts(); ++row) {
        ASSERT_EQ(static_cast<uint8_t>(parts[row][0]), matrix[row * size.data + column]) << row << ' ' << column;
      }
    }
  }
}

TEST(GaloisField, IsThatOfIsal) {
  for (uint32_t a = 0; a < 256; ++a) {
    // The products with all lower halves of a byte, then with all upper ones.
    std::array<unsigned char, 32> table;
    ::gf_vect_mul_init(static_cast<unsigned char>(a), table.data());
    for (uint32_t b = 0; b < 256; ++b) {
      ASSERT_EQ(galois_product(static_cast<uint8_t>(a), static_cast<uint8_t>(b)), table[b & 15] ^ table[16 + (b >> 4)]);
    }
  }
}

/// Loses the parts whose bits are set, rebuilds, and compares.
void check_part_loss(const ErasureCode& code, const std::vector<ByteVector>& parts, uint32_t lost) {
  std::vector<ByteVector> left = parts;
  std::vector<bool> present(code.parts());
  for (uint32_t part = 0; part < code.parts(); ++part) {
    present[part] = (lost >> part & 1) == 0;
    if (!present[part]) std::fill(left[part].begin(), left[part].end(), std::byte{0xee});
  }
  const Status status = code.rebuild(present, std::vector<MutableByteSpan>(left.begin(), left.end()));
  if (static_cast<uint32_t>(std::popcount(lost)) > code.parity_parts()) {
    EXPECT_EQ(status.code(), StatusCode::invalid_argument);
    return;
  }
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(left, parts) << "lost " << lost;
}

TEST(ErasureCode, RebuildsEveryLossThatItPromises) {
  for (const CodeSize& size : kSizes) {
    const ErasureCode code = ErasureCode::create(size.data, size.parity).value();
    // Blocks for the vectors, and such as are too short for them.
    for (const size_t bytes : {67, 40}) {
      const std::vector<ByteVector> parts = encoded(code, bytes, 3);
      for (uint32_t lost = 0; lost < 1u << code.parts(); ++lost) check_part_loss(code, parts, lost);
    }
  }
}

TEST(ErasureCode, RebuildsTheLargestLossOfTheLargestCodes) {
  for (const CodeSize& size : {CodeSize{254, 1}, {128, 127}, {1, 254}}) {
    const ErasureCode code = ErasureCode::create(size.data, size.parity).value();
    const std::vector<ByteVector> parts = encoded(code, 100, 4);
    std::vector<ByteVector> left = parts;
    std::vector<bool> present(code.parts(), true);
    for (uint32_t i = 0; i < size.parity; ++i) {
      present[i] = false;
      left[i].assign(left[i].size(), std::byte{0});
    }
    ASSERT_TRUE(code.rebuild(present, std::vector<MutableByteSpan>(left.begin(), left.end())).ok());
    EXPECT_EQ(left, parts);
  }
}

TEST(ErasureCode, RefusesRepairsOfTooFewOrUnknownParts) {
  const ErasureCode code = ErasureCode::create(3, 2).value();
  using Parts = std::vector<uint32_t>;
  EXPECT_TRUE(code.repair({4, 1, 2}, {0, 3}).ok());
  EXPECT_EQ(code.repair({0, 1}, {2}).status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(code.repair({0, 1, 1}, {2}).status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(code.repair({0, 1, 5}, {2}).status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(code.repair({0, 1, 2}, {5}).status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(code.repair({0, 1, 2}, Parts{}).status().code(), StatusCode::invalid_argument);
}

TEST(ErasureCode, RefusesBlocksThatDiffer) {
  const ErasureCode code = ErasureCode::create(2, 1).value();
  ByteVector ten(10), eleven(11), other(10);
  EXPECT_EQ(code.encode(std::vector<ByteSpan>{ten, eleven}, std::vector<MutableByteSpan>{other}).code(),
            StatusCode::internal);
  EXPECT_EQ(code.encode(std::vector<ByteSpan>{ten}, std::vector<MutableByteSpan>{other}).code(), StatusCode::internal);
  EXPECT_EQ(code.encode(std::vector<ByteSpan>{ten, other}, std::vector<MutableByteSpan>{}).code(),
            StatusCode::internal);
}

}  // namespace
}  // namespace varve
