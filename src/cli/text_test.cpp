#include "cli/text.h"

#include <gtest/gtest.h>

#include "cli/exit_code.h"
#include "core/bytes.h"

namespace varve::cli {
namespace {

TEST(SizesForPeople, HaveThreeSignificantDigits) {
  EXPECT_EQ(format_size(0), "0 B");
  EXPECT_EQ(format_size(1023), "1023 B");
  EXPECT_EQ(format_size(1024), "1.00 KiB");
  EXPECT_EQ(format_size(10'239), "10.0 KiB");
  EXPECT_EQ(format_size(1'048'575), "1.00 MiB");
  EXPECT_EQ(format_size(1000 * 1024), "0.977 MiB");
  EXPECT_EQ(format_size(5'060'000), "4.83 MiB");
  EXPECT_EQ(format_size(UINT64_MAX), "16.0 EiB");
}

TEST(RatiosForPeople, AreADashWhereNothingWasStored) {
  EXPECT_EQ(format_ratio(321, 100), "3.21x");
  EXPECT_EQ(format_ratio(321, 0), "-");
}

TEST(Names, AreLeftAloneWhenPlain) {
  for (const char* name : {"a", "dump 7/cpu0001", "größe", "日本", "back\\slash"}) EXPECT_EQ(quote_name(name), name);
}

TEST(Names, NeverBringControlCharactersToATerminal) {
  EXPECT_EQ(quote_name("a\nb"), R"("a\nb")");
  EXPECT_EQ(quote_name("\x1b[2J"), R"("\x1b[2J")");
  EXPECT_EQ(quote_name("\xc2\x9b"
                       "2J"),
            R"("\u{9b}2J")");
  EXPECT_EQ(quote_name("\xe2\x80\xaegnp"), R"("\u{202e}gnp")");
  EXPECT_EQ(quote_name("\xff\xc3"), R"("\xff\xc3")");
  EXPECT_EQ(quote_name("\xc0\xaf"), R"("\xc0\xaf")");
  EXPECT_EQ(quote_name("\xed\xa0\x80"), R"("\xed\xa0\x80")");
}

TEST(Names, ThatLookQuotedAreQuoted) {
  EXPECT_EQ(quote_name("\"a\""), R"("\"a\"")");
  EXPECT_EQ(quote_name(""), "\"\"");
  EXPECT_EQ(quote_name(" a"), "\" a\"");
}

TEST(SizesOfPeople, CountInBinaryUnits) {
  EXPECT_EQ(*parse_size("4096"), 4096u);
  EXPECT_EQ(*parse_size("512M"), 512_MiB);
  EXPECT_EQ(*parse_size("512MiB"), 512_MiB);
  EXPECT_EQ(*parse_size("64k"), 64_KiB);
  EXPECT_EQ(*parse_size("1.5GiB"), 1536_MiB);
  for (const char* wrong : {"", "M", "-1", "1e9", "12MB", "12 M", "nan", "inf", "99999999999T"})
    EXPECT_FALSE(parse_size(wrong).ok()) << wrong;
}

TEST(Numbers, AreWholeAndWithinTheirLimit) {
  EXPECT_EQ(*parse_number("18446744073709551615"), UINT64_MAX);
  EXPECT_EQ(*parse_number("7", 7), 7u);
  for (const char* wrong : {"", "-1", "+1", "1.5", "0x10", "18446744073709551616"})
    EXPECT_FALSE(parse_number(wrong).ok()) << wrong;
  EXPECT_FALSE(parse_number("8", 7).ok());
}

TEST(Tables, LineUp) {
  Table table({{"set"}, {"size", Table::Align::right}});
  table.add_row({"größe@1", "1 B"});
  table.add_row({"a@10", "100 B"});
  EXPECT_EQ(table.render(), "set       size\ngröße@1    1 B\na@10     100 B\n");
}

TEST(ExitCodes, FollowFromTheKindOfFailure) {
  EXPECT_EQ(exit_code_of(StatusCode::ok), ExitCode::success);
  EXPECT_EQ(exit_code_of(StatusCode::corrupt), ExitCode::damaged);
  EXPECT_EQ(exit_code_of(StatusCode::no_space), ExitCode::failure);
  EXPECT_EQ(exit_code_of(StatusCode::cancelled), ExitCode::interrupted);
}

}  // namespace
}  // namespace varve::cli
