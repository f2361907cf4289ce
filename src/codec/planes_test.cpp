// Bit planes: that the kernels for all processors agree, what they cost, and what hostile bytes may not do.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "codec/plane_kernels.h"
#include "codec/test_packs.h"

namespace varve {
namespace {

using test::Random;

/// Groups of numbers of up to all their bits, many of them narrow or zero.
ByteVector random_numbers(size_t number_bytes, size_t groups, Random& random) {
  ByteVector raw(groups * kernels::kPlaneGroup * number_bytes);
  size_t at = 0;
  for (size_t group = 0; group < groups; ++group) {
    const size_t width = random() % 4 == 0 ? 0 : random() % (8 * number_bytes + 1);
    for (size_t i = 0; i < kernels::kPlaneGroup; ++i, at += number_bytes) {
      std::byte number[8];
      store_le(number, width == 0 ? uint64_t{0} : random() >> (64 - width));
      std::copy_n(number, number_bytes, raw.begin() + static_cast<ptrdiff_t>(at));
    }
  }
  return raw;
}

TEST(PlaneKernels, OfAllProcessorsAgreeByteForByteAndInvertEachOther) {
  ASSERT_EQ(kernels::plane_kernels().front().name, "plain");
  rc::check([] {
    const size_t number_bytes = *rc::gen::element<size_t>(1, 2, 4, 8);
    const size_t groups = *rc::gen::inRange<size_t>(0, 70);
    Random random(*rc::gen::arbitrary<uint64_t>());
    ByteVector shifted(1);  // not aligned
    const ByteVector numbers = random_numbers(number_bytes, groups, random);
    shifted.insert(shifted.end(), numbers.begin(), numbers.end());
    const ByteSpan raw = ByteSpan(shifted).subspan(1);
    ByteVector widths_wanted, planes_wanted;
    for (const kernels::PlaneKernels& kernel : kernels::plane_kernels()) {
      RC_TAG(std::string(kernel.name));
      ByteVector widths(groups), planes(raw.size() + kernels::kPlaneSlack), back(raw.size() + 1, std::byte{9});
      planes.resize(kernel.pack(number_bytes, raw, widths, planes));
      if (kernel.name == "plain") {
        widths_wanted = widths;
        planes_wanted = planes;
      }
      RC_ASSERT(widths == widths_wanted);
      RC_ASSERT(planes == planes_wanted);
      RC_ASSERT(kernels::planes_bytes(number_bytes, widths) == planes.size());
      // Of its own size, so that a sanitizer sees what is read beyond it.
      const ByteVector exactly(planes.begin(), planes.end());
      kernel.unpack(number_bytes, widths, exactly, MutableByteSpan(back).subspan(1));
      RC_ASSERT(std::equal(raw.begin(), raw.end(), back.begin() + 1));
    }
  });
}

TEST(PlaneKernels, UnpackAnyWidthsAlike) {
  Random random(1);
  for (const size_t number_bytes : {1, 2, 4, 8}) {
    for (int repeat = 0; repeat < 200; ++repeat) {
      ByteVector widths(random() % 50);
      for (std::byte& width : widths) width = static_cast<std::byte>(random() % (8 * number_bytes + 1));
      const ByteVector planes = test::random_bytes(kernels::planes_bytes(number_bytes, widths), random);
      ByteVector wanted(widths.size() * kernels::kPlaneGroup * number_bytes), out = wanted;
      kernels::plane_kernels().front().unpack(number_bytes, widths, planes, wanted);
      for (const kernels::PlaneKernels& kernel : kernels::plane_kernels()) {
        kernel.unpack(number_bytes, widths, planes, out);
        ASSERT_EQ(out, wanted) << kernel.name << " " << number_bytes;
      }
    }
  }
}

const Codec& planes() { return **find_codec("planes"); }

TEST(Planes, KeepEveryBitOfEveryFloat) {
  test::expect_comes_back_by("lorenzo+planes", test::pack_of_all_kinds<float>());
  test::expect_comes_back_by("lorenzo+planes", test::pack_of_all_kinds<double>());
}

TEST(Planes, OfZerosCostNothingButTheirWidths) {
  const ByteVector raw(1 << 20);
  const PackShape shape{{ElementKind::signed_integer, ByteOrder::little, 8}, {test::run_of(1 << 17)}};
  ByteVector params, out, decoded(raw.size(), std::byte{1});
  ASSERT_TRUE(planes().encode(raw, shape, 0, params, out).ok());
  EXPECT_LT(out.size(), 40u);
  ASSERT_TRUE(planes().decode(out, params, decoded).ok());
  EXPECT_EQ(decoded, raw);
}

TEST(Planes, OfNoiseAreStoredByTheChain) {
  Random random(2);
  const ByteVector raw = test::random_bytes(1 << 16, random);
  const PackShape shape{{ElementKind::floating, ByteOrder::little, 4}, {test::run_of(1 << 14)}};
  EXPECT_TRUE(recipe_is_store(encode_chain(*CodecChain::parse("lorenzo+planes"), raw, shape)->recipe));
}

/// 16 numbers of one byte, in groups of the widths 2 and 8.
struct TwoGroups {
  ByteVector params = {std::byte{0}, std::byte{2}};
  ByteVector body = ByteVector(2 + 10);
  TwoGroups() {
    body[0] = std::byte{2};
    body[1] = std::byte{8};
  }
  StatusCode decode(size_t bytes = 16) const {
    ByteVector out(bytes);
    return planes().decode(body, params, out).code();
  }
};

TEST(Planes, RefuseWidthsThatDoNotFit) {
  ASSERT_EQ(TwoGroups().decode(), StatusCode::ok);
  TwoGroups wide;  // the sum is right, but a number of one byte has no nine bits
  wide.body[0] = std::byte{1};
  wide.body[1] = std::byte{9};
  EXPECT_EQ(wide.decode(), StatusCode::corrupt);
  TwoGroups less, more;
  less.body[0] = std::byte{1};
  more.body[0] = std::byte{3};
  EXPECT_EQ(less.decode(), StatusCode::corrupt);
  EXPECT_EQ(more.decode(), StatusCode::corrupt);
  for (const size_t bytes : {0, 8, 15, 17, 24}) EXPECT_EQ(TwoGroups().decode(bytes), StatusCode::corrupt) << bytes;
}

TEST(Planes, RefuseParametersThatDoNotFit) {
  for (const uint8_t head : {1, 4, 8, 0x80}) {
    TwoGroups groups;
    groups.params[0] = std::byte{head};
    EXPECT_EQ(groups.decode(), StatusCode::corrupt) << int{head};
  }
  for (const uint8_t widths_bytes : {0, 1, 3, 13, 127}) {
    TwoGroups groups;
    groups.params[1] = std::byte{widths_bytes};
    EXPECT_EQ(groups.decode(), StatusCode::corrupt) << int{widths_bytes};
  }
  TwoGroups longer;
  longer.params.push_back(std::byte{0});
  EXPECT_EQ(longer.decode(), StatusCode::corrupt);
}

}  // namespace
}  // namespace varve
