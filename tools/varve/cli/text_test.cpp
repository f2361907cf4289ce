#include "cli/text.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <optional>

#include "cli/process.h"
#include "cli/remedies.h"

namespace varve::cli {
namespace {

TEST(Hints, AreSaidInCommands) {
  const Status torn = Status::corrupt("it is torn", "/store/x", {Remedy::drop_set, "run@7"});
  EXPECT_NE(hint_of(torn).find("`varve drop run@7`"), std::string::npos);
  EXPECT_EQ(in_one_line(torn), "it is torn: /store/x (" + hint_of(torn) + ")");
  EXPECT_EQ(hint_of(Status::corrupt("it is torn", {}, "put it back")), "put it back");
  EXPECT_EQ(hint_of(Status::corrupt("it is torn")), "");
  EXPECT_EQ(in_one_line(Status()), "ok");
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

TEST(Times, SayTheirZoneWhichIsAnotherOneInSummer) {
  const char* const zone = std::getenv("TZ");
  const std::optional<std::string> before = zone != nullptr ? std::optional<std::string>(zone) : std::nullopt;
  ::setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3", 1);
  ::tzset();
  EXPECT_EQ(format_time(1'700'000'000), "2023-11-14 23:13:20 CET");
  EXPECT_EQ(format_time(1'690'000'000), "2023-07-22 06:26:40 CEST");
  before ? ::setenv("TZ", before->c_str(), 1) : ::unsetenv("TZ");
  ::tzset();
}

TEST(Tables, LineUp) {
  Table table({{"set"}, {"size", Table::Align::right}});
  table.add_row({"größe@1", "1 B"});
  table.add_row({"a@10", "100 B"});
  EXPECT_EQ(table.render(), "set       size\ngröße@1    1 B\na@10     100 B\n");
}

TEST(Text, EscapesEachLineOfANoteByItself) {
  EXPECT_EQ(escape_lines("one\n\x1b[2J\n\n"), "one\n\\x1b[2J\n\n");
  EXPECT_EQ(escape_lines("no line\tends"), "no line\\tends");
  EXPECT_EQ(escape_lines(""), "");
}

TEST(Text, WordsOfASetSayThatItHasANote) {
  EXPECT_EQ(words_of({}), "");
  EXPECT_EQ(words_of({.pinned = false, .has_note = true, .tags = {}}), "note");
  const SetRemarks all{.pinned = true, .has_note = true, .tags = {"best", "final"}};
  EXPECT_EQ(words_of(all), "pinned, best, final, note");
  EXPECT_EQ(pin_and_tags_of(all), "pinned, best, final");
}

TEST(ExitCodes, FollowFromTheKindOfFailure) {
  EXPECT_EQ(exit_code_of(StatusCode::ok), ExitCode::success);
  EXPECT_EQ(exit_code_of(StatusCode::corrupt), ExitCode::damaged);
  EXPECT_EQ(exit_code_of(StatusCode::no_space), ExitCode::failure);
  EXPECT_EQ(exit_code_of(StatusCode::cancelled), ExitCode::interrupted);
}

}  // namespace
}  // namespace varve::cli
