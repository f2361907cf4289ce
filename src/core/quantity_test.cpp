#include "core/quantity.h"

#include <gtest/gtest.h>

#include "core/bytes.h"

namespace varve {
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

TEST(AmountsOfPeople, CountInEitherKindOfUnit) {
  EXPECT_DOUBLE_EQ(*parse_amount("6.25GB"), 6.25e9);
  EXPECT_DOUBLE_EQ(*parse_amount("6.25G"), 6.25 * 1024 * 1024 * 1024);
  EXPECT_DOUBLE_EQ(*parse_amount("1e9"), 1e9);
  EXPECT_DOUBLE_EQ(*parse_amount("3kB"), 3000.0);
  EXPECT_DOUBLE_EQ(*parse_amount("3KB"), 3000.0);
  for (const char* wrong : {"", "GB", "-1", "1 GB", "1gb", "1kb", "1GBs", "nan", "inf", "1e400"})
    EXPECT_FALSE(parse_amount(wrong).ok()) << wrong;
}

TEST(RatesOfPeople, AreAmountsPerSecondAboveZero) {
  EXPECT_DOUBLE_EQ(*parse_rate("100MB/s"), 1e8);
  EXPECT_DOUBLE_EQ(*parse_rate("100KB/s"), 1e5);
  EXPECT_DOUBLE_EQ(*parse_rate("100MiB/s"), 104'857'600.0);
  EXPECT_DOUBLE_EQ(*parse_rate("3G"), 3.0 * 1024 * 1024 * 1024);
  EXPECT_DOUBLE_EQ(*parse_rate("2500000"), 2.5e6);
  for (const char* wrong : {"", "/s", "0", "0MB/s", "100MB/min", "-5M", "fast"})
    EXPECT_FALSE(parse_rate(wrong).ok()) << wrong;
}

TEST(DurationsOfPeople, AreSecondsOrSumsOfUnits) {
  EXPECT_DOUBLE_EQ(*parse_duration("90"), 90.0);
  EXPECT_DOUBLE_EQ(*parse_duration("0.5"), 0.5);
  EXPECT_DOUBLE_EQ(*parse_duration("250ms"), 0.25);
  EXPECT_DOUBLE_EQ(*parse_duration("30min"), 1800.0);
  EXPECT_DOUBLE_EQ(*parse_duration("1h30min"), 5400.0);
  EXPECT_DOUBLE_EQ(*parse_duration("1.5h"), 5400.0);
  EXPECT_DOUBLE_EQ(*parse_duration("2d"), 172'800.0);
  for (const char* wrong : {"", "min", "-1", "30 min", "1h30", "5m", "30minutes", "1h-5min", "nan", "inf"})
    EXPECT_FALSE(parse_duration(wrong).ok()) << wrong;
}

TEST(QuantitiesForPeople, HaveThreeSignificantDigits) {
  EXPECT_EQ(format_duration(12.34), "12.3 s");
  EXPECT_EQ(format_duration(750), "12.5 min");
  EXPECT_EQ(format_duration(7200), "2.00 h");
  EXPECT_EQ(format_duration(864'000), "10.0 d");
  EXPECT_EQ(format_rate(512), "512 B/s");
  EXPECT_EQ(format_rate(1e8), "100 MB/s");
  EXPECT_EQ(format_rate(3e9), "3.00 GB/s");
  EXPECT_EQ(format_percent(0.0035), "0.350 %");
  EXPECT_EQ(format_percent(0.12), "12.0 %");
  EXPECT_EQ(format_percent(1.5), "150 %");
}

}  // namespace
}  // namespace varve
