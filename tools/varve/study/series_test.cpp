#include "study/study_set.h"

#include "study/series_folder.h"

namespace varve {
namespace {

using test::TempFolder;
using test::write_file;

std::vector<std::string> labels(const std::vector<std::string>& paths) {
  std::vector<std::string> found;
  const Result<std::vector<SetPlace>> places = find_series(paths);
  EXPECT_TRUE(places.ok()) << places.status().to_string();
  if (places.ok()) {
    for (const SetPlace& place : *places) found.push_back(place.label);
  }
  return found;
}

TEST(NaturalOrder, CountsAsPeopleDo) {
  EXPECT_TRUE(natural_less("dump9", "dump10"));
  EXPECT_TRUE(natural_less("DD0009", "DD0010"));
  EXPECT_TRUE(natural_less("a9b1", "a10b0"));
  EXPECT_TRUE(natural_less("dump", "dump1"));
  EXPECT_FALSE(natural_less("dump10", "dump9"));
  EXPECT_FALSE(natural_less("dump1", "dump1"));
  EXPECT_NE(natural_less("dump01", "dump1"), natural_less("dump1", "dump01")) << "it is an order of different names";
}

TEST(Series, IsTheFoldersOfAFolderWithoutFiles) {
  const TempFolder place;
  for (const char* name : {"dump9", "dump10", "dump100"}) write_file(place / "run/" + name + "/rank0", "data");
  EXPECT_EQ(labels({place / "run"}), (std::vector<std::string>{"dump9", "dump10", "dump100"}));
  EXPECT_EQ(labels({place / "run/"}).size(), 3u);
}

TEST(Series, TakesAFolderWithFilesForOneSet) {
  const TempFolder place;
  write_file(place / "dump/parameters", "text");
  write_file(place / "dump/data/rank0", "data");
  EXPECT_EQ(labels({place / "dump"}), std::vector<std::string>{"dump"});
}

TEST(Series, TakesFilesAndFoldersInTheOrderGiven) {
  const TempFolder place;
  write_file(place / "core.2", "data");
  write_file(place / "core.1", "data");
  write_file(place / "dump/rank0", "data");
  EXPECT_EQ(labels({place / "core.2", place / "dump", place / "core.1"}),
            (std::vector<std::string>{"core.2", "dump", "core.1"}));
}

TEST(Series, SaysWhatIsNotThere) {
  const TempFolder place;
  EXPECT_EQ(find_series({place / "nothing"}).status().code(), StatusCode::not_found);
}

TEST(StudySets, GiveStreamsOfTheSameMeaningTheSameKeyInEverySet) {
  const test::SeriesFolder folder;
  for (int set : {1, 2}) {
    for (int rank : {0, 1}) folder.write(set, rank, test::random_bytes(100'000, 1));
  }
  const StudySeries series = folder.open();
  ASSERT_EQ(series.sets.size(), 2u);
  EXPECT_EQ(series.rank_count(), 2u);
  EXPECT_EQ(series.bytes(), 400'000u);
  for (size_t i = 0; i < series.sets[0].keys.size(); ++i) {
    EXPECT_EQ(series.sets[0].keys[i].class_id, series.sets[1].keys[i].class_id);
    EXPECT_EQ(series.sets[0].keys[i].ordinal, series.sets[1].keys[i].ordinal);
  }
}

}  // namespace
}  // namespace varve
