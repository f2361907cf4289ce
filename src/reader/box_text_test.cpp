#include "reader/box_text.h"

#include <gtest/gtest.h>

namespace varve {
namespace {

const std::vector<uint64_t> kShape{10, 6, 8};

TEST(BoxText, ARangeEndsBeforeItsSecondNumber) {
  const WrittenBox written = parse_box("[2:5,:,7:8]", kShape).value();
  EXPECT_EQ(written.box, (CellBox{{2, 0, 7}, {3, 6, 1}}));
  EXPECT_EQ(written.shape, (std::vector<uint64_t>{3, 6, 1}));
}

TEST(BoxText, WhatIsNotSaidIsWhole) {
  EXPECT_EQ(parse_box("[:5]", kShape)->box, (CellBox{{0, 0, 0}, {5, 6, 8}}));
  EXPECT_EQ(parse_box("[4:,2:]", kShape)->box, (CellBox{{4, 2, 0}, {6, 4, 8}}));
  EXPECT_EQ(parse_box("", kShape)->box, (CellBox{{0, 0, 0}, kShape}));
  EXPECT_EQ(parse_box("", {})->box, CellBox{});
}

TEST(BoxText, ANumberChoosesOneCellAndTakesItsDimensionAway) {
  const WrittenBox written = parse_box("[3,:,0]", kShape).value();
  EXPECT_EQ(written.box, (CellBox{{3, 0, 0}, {1, 6, 1}}));
  EXPECT_EQ(written.shape, std::vector<uint64_t>{6});
  EXPECT_EQ(written.dimensions, std::vector<size_t>{1});
  EXPECT_EQ(parse_box("[9,5,7]", kShape)->shape, std::vector<uint64_t>{});
}

TEST(BoxText, ARangeMayBeEmpty) {
  EXPECT_EQ(parse_box("[10:10]", kShape)->box, (CellBox{{10, 0, 0}, {0, 6, 8}}));
  EXPECT_EQ(parse_box("[:]", {0})->box, (CellBox{{0}, {0}}));
}

TEST(BoxText, WhatIsNoBoxOrReachesBeyondTheArrayIsRefusedWithAHint) {
  for (const char* text : {"[]",
                           "[",
                           "]",
                           "[,]",
                           "2:5",
                           "[2:5",
                           "[5:2]",
                           "[11:]",
                           "[:11]",
                           "[10]",
                           "[-1]",
                           "[:-1]",
                           "[-3:]",
                           "[0:4:2]",
                           "[::2]",
                           "[1,2,3,4]",
                           "[:,:,:,:]",
                           "[...]",
                           "[a]",
                           "[1.5]",
                           "[0x1]",
                           "[+1]",
                           "[ 1]",
                           "[1:99999999999999999999]",
                           "[18446744073709551615]",
                           "[[1]]",
                           "[1]]"}) {
    const Status refused = parse_box(text, kShape).status();
    EXPECT_EQ(refused.code(), StatusCode::invalid_argument) << text;
    EXPECT_FALSE(refused.hint().empty()) << text;
  }
  EXPECT_FALSE(parse_box("[0]", {}).ok());
  EXPECT_FALSE(parse_box("[0]", {0}).ok());
}

TEST(BoxText, TheBoxIsWhatIsInTheLastBrackets) {
  EXPECT_EQ(split_box("density[0:10,:]").name, "density");
  EXPECT_EQ(split_box("density[0:10,:]").box, "[0:10,:]");
  EXPECT_EQ(split_box("speed[2][3]").name, "speed[2]");
  EXPECT_EQ(split_box("density").name, "density");
  EXPECT_EQ(split_box("density").box, "");
  EXPECT_EQ(split_box("[3]").name, "[3]");
  EXPECT_EQ(split_box("a]").name, "a]");
}

}  // namespace
}  // namespace varve
