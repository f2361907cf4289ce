#include "level/byte_swaps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace varve {
namespace {

constexpr size_t kBytes = 200'000;

class Memory final : public ImageTarget {
 public:
  void put(uint64_t offset, ByteSpan bytes) override {
    ASSERT_LE(offset + bytes.size(), held.size());
    std::copy(bytes.begin(), bytes.end(), held.begin() + static_cast<ptrdiff_t>(offset));
  }
  ByteVector held = ByteVector(kBytes);
};

/// Arrays of numbers of 8, 2 and 4 bytes, two of them beside each other, of which one takes more than a window.
class NumbersOfTheOtherByteOrder : public testing::Test {
 protected:
  NumbersOfTheOtherByteOrder() {
    uint32_t state = 7;
    for (auto& byte : stored) byte = static_cast<ByteVector::value_type>((state = state * 1664525 + 1013904223) >> 24);
    turned = stored;
    for (const auto& [extent, size] : std::vector<std::pair<Extent, uint32_t>>{
             {{3, 150'000}, 8}, {{160'001, 6}, 2}, {{160'007, 400}, 4}, {{170'000, 0}, 8}}) {
      swaps.add(extent, size);
      for (uint64_t at = extent.offset; at < extent.offset + extent.bytes; at += size) {
        const auto number = turned.begin() + static_cast<ptrdiff_t>(at);
        std::reverse(number, number + size);
      }
    }
  }

  ByteVector stored = ByteVector(kBytes), turned;
  ByteSwaps swaps;
};

TEST_F(NumbersOfTheOtherByteOrder, AreTurnedHoweverTheirBytesCome) {
  for (const size_t piece : {size_t{1}, size_t{3}, size_t{7}, size_t{8}, size_t{4099}, size_t{65'536}, kBytes}) {
    Memory memory;
    for (size_t at = 0; at < kBytes; at += piece) {
      swaps.put(at, ByteSpan(stored).subspan(at, std::min(piece, kBytes - at)), memory);
    }
    EXPECT_EQ(memory.held, turned) << "in pieces of " << piece;
  }
}

TEST_F(NumbersOfTheOtherByteOrder, AreReadTurnedFromAnyByteOn) {
  const auto read_stored = [&](uint64_t offset, MutableByteSpan into) -> Status {
    if (offset > kBytes || into.size() > kBytes - offset) return Status::corrupt("past the end");
    std::copy_n(stored.begin() + static_cast<ptrdiff_t>(offset), into.size(), into.begin());
    return {};
  };
  for (const uint64_t begin : {0u, 2u, 3u, 4u, 149'995u, 150'003u, 159'000u, 160'001u, 160'004u, 160'010u, 199'999u}) {
    for (const uint64_t bytes : {0u, 1u, 2u, 9u, 600u, 10'011u}) {
      if (begin + bytes > kBytes) continue;
      ByteVector into(bytes);
      const Status read = swaps.read(begin, into, read_stored);
      ASSERT_TRUE(read.ok()) << read.to_string();
      EXPECT_TRUE(std::equal(into.begin(), into.end(), turned.begin() + static_cast<ptrdiff_t>(begin)))
          << bytes << " from " << begin;
    }
  }
}

TEST_F(NumbersOfTheOtherByteOrder, AreNotGivenIfTheyCannotBeRead) {
  const auto fail = [](uint64_t, MutableByteSpan) { return Status::io_error("gone"); };
  ByteVector into(10);
  EXPECT_EQ(swaps.read(5, into, fail).code(), StatusCode::io_error);
  EXPECT_EQ(swaps.read(155'000, into, fail).code(), StatusCode::io_error);
}

}  // namespace
}  // namespace varve
