#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cerrno>
#include <limits>
#include <set>

#include "core/bytes.h"
#include "varve/element_type.h"
#include "varve/status.h"

namespace varve {
namespace {

TEST(Status, IsOkUntilSomethingHappens) {
  Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::ok);
  EXPECT_EQ(status.to_string(), "ok");
  EXPECT_TRUE(status.with_context("while testing").ok());
  EXPECT_TRUE(status.with_hint("nothing to do").ok());
}

TEST(Status, KeepsARemedyAndWhatItIsAbout) {
  const Status status = Status::corrupt("it is torn", "/store", {Remedy::drop_set, "run@7"});
  EXPECT_NE(status.hint().find("drop the set run@7"), std::string_view::npos);
  for (const Status& same : {status, status.with_context("cannot restore"), status.with_code(StatusCode::io_error),
                             status.with_subject("elsewhere"), status.with_hint("nothing else")}) {
    EXPECT_EQ(same.remedy(), Remedy::drop_set);
    EXPECT_EQ(same.remedy_argument(), "run@7");
    EXPECT_EQ(same.hint(), status.hint());
  }
  EXPECT_EQ(Status::corrupt("it is torn").with_hint(Remedy::verify).remedy(), Remedy::verify);
}

TEST(Remedies, HaveNamesOfTheirOwnAndSayWhatToDo) {
  std::set<std::string_view> names;
  for (uint8_t number = 0; number <= kRemedyMax; ++number) {
    const auto remedy = static_cast<Remedy>(number);
    EXPECT_TRUE(names.insert(remedy_name(remedy)).second) << remedy_name(remedy);
    EXPECT_EQ(Hint(remedy, "x").text.empty(), remedy == Remedy::none);
  }
}

TEST(Status, TellsWhatHappenedToWhatAndWhatToDo) {
  Status status = Status::not_found("no such store", "/tmp/store", "create it first");
  EXPECT_EQ(status.code(), StatusCode::not_found);
  EXPECT_EQ(status.to_string(), "no such store: /tmp/store (create it first)");
  EXPECT_EQ(status.with_context("cannot save").message(), "cannot save: no such store");
  EXPECT_EQ(status.with_context("cannot save").subject(), "/tmp/store");
}

TEST(Status, KeepsTheFirstHint) {
  EXPECT_EQ(Status::corrupt("bad", "x").with_hint("first").with_hint("second").hint(), "first");
}

TEST(Status, SortsErrnoValuesByWhatTheUserCanDo) {
  EXPECT_EQ(Status::from_errno(ENOSPC, "write", "f").code(), StatusCode::no_space);
  EXPECT_EQ(Status::from_errno(EDQUOT, "write", "f").code(), StatusCode::no_space);
  EXPECT_EQ(Status::from_errno(ENOENT, "open", "f").code(), StatusCode::not_found);
  EXPECT_EQ(Status::from_errno(EEXIST, "create", "f").code(), StatusCode::already_exists);
  EXPECT_EQ(Status::from_errno(ENOTEMPTY, "remove", "f").code(), StatusCode::already_exists);
  EXPECT_EQ(Status::from_errno(EACCES, "open", "f").code(), StatusCode::permission_denied);
  EXPECT_EQ(Status::from_errno(EMFILE, "open", "f").code(), StatusCode::resource_limit);
  EXPECT_EQ(Status::from_errno(EIO, "read", "f").code(), StatusCode::io_error);
  EXPECT_EQ(Status::from_errno(EIO, "read", "f").subject(), "f");
}

TEST(Status, HasAStableNameForEveryCode) {
  EXPECT_EQ(status_code_name(StatusCode::ok), "ok");
  EXPECT_EQ(status_code_name(StatusCode::no_space), "no_space");
  EXPECT_EQ(status_code_name(StatusCode::internal), "internal");
}

Result<int> half(int value) {
  if (value % 2 != 0) return Status::invalid_argument("odd");
  return value / 2;
}
Result<int> quarter(int value) {
  VARVE_ASSIGN(int once, half(value));
  VARVE_ASSIGN(int twice, half(once));
  return twice;
}
Status check_quarter(int value) {
  VARVE_TRY(quarter(value).status());
  return {};
}

TEST(Result, HandsTheFirstFailureUp) {
  EXPECT_EQ(*quarter(12), 3);
  EXPECT_EQ(quarter(6).status().code(), StatusCode::invalid_argument);
  EXPECT_TRUE(check_quarter(8).ok());
  EXPECT_EQ(check_quarter(7).message(), "odd");
}

TEST(Bytes, LieLittleEndianOnDisk) {
  ByteVector out;
  ByteWriter writer(out);
  writer.u8(1);
  writer.le16(0x0302);
  writer.le32(0x07060504);
  writer.le64(0x0f0e0d0c0b0a0908);
  ASSERT_EQ(out.size(), 15u);
  for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(static_cast<size_t>(out[i]), i + 1);
  EXPECT_EQ(to_hex(ByteSpan(out).first(3)), "010203");
}

RC_GTEST_PROP(Bytes, ReadBackWhatWasWritten,
              (uint8_t a, uint16_t b, uint32_t c, uint64_t d, int64_t e, const std::string& text)) {
  ByteVector out;
  ByteWriter writer(out);
  writer.u8(a);
  writer.le16(b);
  writer.le32(c);
  writer.le64(d);
  writer.varint(d);
  writer.signed_varint(e);
  writer.text(text);
  ByteReader reader(out);
  RC_ASSERT(*reader.u8() == a);
  RC_ASSERT(*reader.le16() == b);
  RC_ASSERT(*reader.le32() == c);
  RC_ASSERT(*reader.le64() == d);
  RC_ASSERT(*reader.varint() == d);
  RC_ASSERT(*reader.signed_varint() == e);
  RC_ASSERT(*reader.text() == text);
  RC_ASSERT(reader.at_end());
}

RC_GTEST_PROP(ByteReader, NeverLeavesHostileBytes,
              (const std::vector<uint8_t>& raw, const std::vector<uint8_t>& steps)) {
  ByteReader reader(std::as_bytes(std::span(raw)));
  for (uint8_t step : steps) {
    switch (step % 7) {
      case 0: reader.u8().status().ignore("any outcome"); break;
      case 1: reader.le32().status().ignore("any outcome"); break;
      case 2: reader.varint().status().ignore("any outcome"); break;
      case 3: reader.signed_varint().status().ignore("any outcome"); break;
      case 4: {
        auto text = reader.text();
        if (text.ok()) RC_ASSERT(text->size() <= raw.size());
        break;
      }
      case 5: {
        auto count = reader.count(3);
        if (count.ok()) RC_ASSERT(*count * 3 <= reader.remaining());
        break;
      }
      case 6: reader.bytes(step).status().ignore("any outcome"); break;
    }
    RC_ASSERT(reader.position() + reader.remaining() == raw.size());
  }
}

TEST(ByteReader, TakesTheLargestNumbers) {
  ByteVector out;
  ByteWriter writer(out);
  writer.varint(std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(out.size(), 10u);
  writer.signed_varint(std::numeric_limits<int64_t>::min());
  writer.signed_varint(std::numeric_limits<int64_t>::max());
  ByteReader reader(out);
  EXPECT_EQ(*reader.varint(), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(*reader.signed_varint(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(*reader.signed_varint(), std::numeric_limits<int64_t>::max());
}

TEST(ByteReader, RejectsNumbersOfMoreThan64Bits) {
  ByteVector two_more_bits(9, std::byte{0xff});
  two_more_bits.push_back(std::byte{0x03});
  EXPECT_EQ(ByteReader(two_more_bits).varint().status().code(), StatusCode::corrupt);
  ByteVector endless(20, std::byte{0x80});
  EXPECT_EQ(ByteReader(endless).varint().status().code(), StatusCode::corrupt);
}

TEST(ByteReader, RejectsNumbersThatAreCutOff) {
  ByteVector cut(3, std::byte{0x80});
  EXPECT_EQ(ByteReader(cut).varint().status().code(), StatusCode::corrupt);
  EXPECT_EQ(ByteReader(cut).le32().status().code(), StatusCode::corrupt);
  EXPECT_EQ(ByteReader({}).u8().status().code(), StatusCode::corrupt);
}

TEST(ByteReader, RejectsCountsAndLengthsThatCannotFit) {
  ByteVector out;
  ByteWriter(out).varint(std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(ByteReader(out).count().status().code(), StatusCode::corrupt);
  EXPECT_EQ(ByteReader(out).text().status().code(), StatusCode::corrupt);
  ByteVector three;
  ByteWriter(three).varint(3);
  three.resize(1 + 8);
  EXPECT_EQ(ByteReader(three).count(4).status().code(), StatusCode::corrupt);
  three.resize(1 + 12);
  EXPECT_EQ(*ByteReader(three).count(4), 3u);
}

TEST(ElementType, HasANameThatParsesBack) {
  for (const char* name :
       {"F32LE", "F64BE", "I8", "I16LE", "I64BE", "U8", "U32LE", "BYTES", "O12", "T80", "T1", "F128LE"}) {
    auto type = ElementType::parse(name);
    ASSERT_TRUE(type.ok()) << name;
    EXPECT_EQ(type->name(), name);
  }
}

TEST(ElementType, TakesTheShortNamesOfTheCommandLine) {
  EXPECT_EQ(ElementType::parse("f64")->name(), "F64LE");
  EXPECT_EQ(ElementType::parse("f32be")->name(), "F32BE");
  EXPECT_EQ(ElementType::parse("u8")->name(), "U8");
  EXPECT_EQ(ElementType::parse("u8be")->order, ByteOrder::little);
}

TEST(ElementType, RejectsWhatIsNoType) {
  for (const char* name : {"", "F", "X32", "F0", "F12", "F32XE", "I99999999999", "O", "O0", "T5LE", "F256", "F-32"}) {
    EXPECT_FALSE(ElementType::parse(name).ok()) << name;
  }
}

}  // namespace
}  // namespace varve
