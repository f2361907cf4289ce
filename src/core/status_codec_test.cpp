#include "core/status_codec.h"

#include <gtest/gtest.h>

namespace varve {
namespace {

TEST(StatusCodec, BringsBackWhatWasSaid) {
  for (const Status& said : {Status(), Status(StatusCode::no_space, "the disk is full", "/scratch", "make some room"),
                             Status(StatusCode::corrupt, "it is torn", "/store", {Remedy::drop_set, "run@7"})}) {
    Status read = Status::internal("not read yet");
    ASSERT_TRUE(decode_status(encode_status(said), read).ok());
    EXPECT_EQ(read.code(), said.code());
    EXPECT_EQ(read.message(), said.message());
    EXPECT_EQ(read.subject(), said.subject());
    EXPECT_EQ(read.hint(), said.hint());
    EXPECT_EQ(read.remedy(), said.remedy());
    EXPECT_EQ(read.remedy_argument(), said.remedy_argument());
  }
}

TEST(StatusCodec, TakesARemedyThatItDoesNotKnowForNone) {
  ByteVector bytes = encode_status(Status(StatusCode::busy, "", "", {Remedy::drop_set, "run@7"}));
  bytes[3] = std::byte{kRemedyMax + 1};
  Status read;
  ASSERT_TRUE(decode_status(bytes, read).ok());
  EXPECT_EQ(read.code(), StatusCode::busy);
  EXPECT_EQ(read.remedy(), Remedy::none);
  EXPECT_EQ(read.hint(), "");
}

TEST(StatusCodec, CutsLongTextsBetweenCharacters) {
  const Status said = Status::corrupt("aé" + std::string(100, 'x'));
  Status read;
  ASSERT_TRUE(decode_status(encode_status(said, 2), read).ok());
  EXPECT_EQ(read.message(), "a") << "é has two bytes";
  ASSERT_TRUE(decode_status(encode_status(said, 3), read).ok());
  EXPECT_EQ(read.message(), "aé");
}

TEST(StatusCodec, RefusesWhatIsNone) {
  ByteVector bytes = encode_status(Status::corrupt("x", "y"));
  Status read;
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(decode_status(ByteSpan(bytes).first(length), read).ok()) << length;
  }
  bytes[0] = std::byte{200};
  EXPECT_EQ(decode_status(bytes, read).code(), StatusCode::corrupt);
}

}  // namespace
}  // namespace varve
