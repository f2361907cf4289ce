// What was written must be readable for ever: bytes that must not change, and what other programs make of ours.
#include <gtest/gtest.h>

#if VARVE_TEST_WITH_FPZIP
#include <fpzip.h>
#endif

#include "codec/test_packs.h"

namespace varve {
namespace {

ByteVector bytes_of_hex(std::string_view hex) {
  ByteVector bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

template <class T>
ByteVector bytes_of(std::initializer_list<T> values) {
  ByteVector bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.begin(), bytes.size());
  return bytes;
}

/// The chain writes exactly this recipe and body, and reads them back.
void expect_bytes(std::string_view chain, const PackShape& shape, const ByteVector& raw, std::string_view recipe,
                  std::string_view body) {
  const Codec& codec = **find_codec(chain.substr(0, chain.find(':')));
  const int level = chain.find(':') == std::string_view::npos ? 0 : std::stoi(std::string(chain.substr(chain.find(':') + 1)));
  ByteVector params, out;
  ASSERT_TRUE(codec.encode(raw, shape, level, params, out).ok());
  EXPECT_EQ(to_hex(params), recipe) << chain;
  EXPECT_EQ(to_hex(out), body) << chain;
  ByteVector decoded(raw.size());
  ASSERT_TRUE(codec.decode(bytes_of_hex(body), bytes_of_hex(recipe), decoded).ok()) << chain;
  EXPECT_EQ(decoded, raw) << chain;
}

constexpr ElementType kFloat{ElementKind::floating, ByteOrder::little, 4};
constexpr ElementType kBigFloat{ElementKind::floating, ByteOrder::big, 4};
constexpr ElementType kDouble{ElementKind::floating, ByteOrder::little, 8};
constexpr ElementType kShort{ElementKind::signed_integer, ByteOrder::little, 2};

TEST(CodecFormat, OfLorenzoOnIntegers) {
  // 10 12 15 / 11 13 18: differences along x, then three back, then zigzag.
  const PackShape shape{kShort, {Run{6, {3, 2}, true}}};
  const ByteVector raw = bytes_of<int16_t>({10, 12, 15, 11, 13, 18});
  expect_bytes("lorenzo", shape, raw, "", "");
}

}  // namespace
}  // namespace varve
