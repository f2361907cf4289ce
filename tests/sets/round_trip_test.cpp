// What is restored is what was saved, byte for byte, whatever the data and however they were saved.

#include <gtest/gtest.h>

#include "codec/codec.h"
#include "sets/round_trip.h"
#include "zoo/zoo.h"

namespace varve {
namespace {

using test::TempFolder;
using test::Way;

/// A few chains that use every kind of stage.
const std::vector<std::string> kSomeCodecs = {
    "balanced", "store", "paper", "lorenzo+shuffle+zstd:1", "lorenzo+magnitudes", "bitshuffle+delta+gzip:1"};
const std::vector<std::string> kChunkers = {"fixed:8192", "gear:8192", "rabin:8192"};

/// A generated zoo without what makes it slow.
struct Zoo : testing::Test {
  static void SetUpTestSuite() {
    folder = new TempFolder;
    zoo::Options options;
    options.tiny_variables = 500;
    options.huge_file_bytes = 64_MiB;
    zoo::make_zoo(folder->path(), options);
  }
  static void TearDownTestSuite() { delete folder; }
  static TempFolder* folder;
};
TempFolder* Zoo::folder = nullptr;

TEST_F(Zoo, ComesBackUnderEverySchemeWithSomeChainsAndEveryChunker) {
  for (const Way& way : test::every_way(kSomeCodecs, kChunkers)) ASSERT_TRUE(test::come_back({folder->path()}, way));
}

TEST_F(Zoo, ComesBackWithEveryCodecOnItsOwn) {
  for (const Codec* codec : all_codecs()) {
    ASSERT_TRUE(test::come_back({folder->path()}, {Scheme::aware, std::string(codec->name()), "fixed:8192"}));
  }
}

TEST_F(Zoo, ComesBackWithTheSmallestAndTheLargestChunksAndPacks) {
  for (const char* chunker : {"fixed:64", "fixed:1048576", "gear:64", "rabin:64", "gear:262144"}) {
    ASSERT_TRUE(test::come_back({folder->path()}, {Scheme::aware_block, "zstd:1", chunker})) << chunker;
  }
}

TEST_F(Zoo, ComesBackFromAStoreOnDisk) {
  const TempFolder place(TempFolder::Where::disk);
  const auto store = test::make_store(posix_file_system(), place / "store");
  SaveOptions options = test::save_options("zoo", 1);
  options.thread_count = 0;
  options.direct_io = true;
  const Result<SaveReport> saved = save_folder(*store, folder->path(), options, test::layout_service());
  ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  RestoreOptions restore_options;
  ASSERT_TRUE(test::restores_as(*store, {"zoo", 1}, test::snapshot_of(folder->path()), restore_options));
  ASSERT_TRUE(test::is_whole(*test::open_store(posix_file_system(), place / "store")));
}

TEST(LargeFiles, ComeBackFromAStoreOnDiskToADisk) {
  // Dense, half holes, all zeros, and of a length that is no multiple of anything.
  const TempFolder place(TempFolder::Where::disk);
  const std::string folder = place / "source";
  test::write_file(folder + "/dense", test::random_bytes(20'000'001, 1));
  ByteVector half = test::random_bytes(8_MiB, 2);
  half.resize(16_MiB);
  test::write_file(folder + "/half", half);
  test::write_file(folder + "/zeros", ByteVector(5'000'000));
  test::write_file(folder + "/smooth", test::smooth_field(1'000'000, 3));
  const auto store = test::make_store(posix_file_system(), place / "store");
  const test::Snapshot saved = test::snapshot_of(folder);
  uint64_t step = 0;
  for (Scheme scheme : test::kSchemes) {
    for (bool direct : {false, true}) {
      SaveOptions options = test::options_of({scheme, "balanced", "fixed:8192"}, "large", ++step);
      options.direct_io = direct;
      ASSERT_TRUE(save_folder(*store, folder, options, test::layout_service()).ok());
      RestoreOptions restore_options;
      restore_options.sync = direct;
      const TempFolder target(TempFolder::Where::disk);
      ASSERT_TRUE(restore_set(*store, {"large", step}, target / "here", restore_options).ok());
      ASSERT_EQ(test::snapshot_of(target / "here"), saved);
    }
  }
}

TEST(OddTree, WithAFileOfATebibyteComesBackUnderEveryScheme) {
  const TempFolder folder;
  zoo::make_odd_tree(folder.path());
  for (Scheme scheme : test::kSchemes) {
    ASSERT_TRUE(test::come_back({folder.path()}, {scheme, "balanced", "fixed:8192"}));
  }
}

TEST(EmptyFolder, ComesBack) {
  const TempFolder folder;
  for (Scheme scheme : test::kSchemes) ASSERT_TRUE(test::come_back({folder.path()}, {scheme, "balanced", "gear:8192"}));
}

TEST(Sample, ComesBackUnderEverySchemeAndSharesWhatDoesNotChange) {
  const std::string sample = std::string(VARVE_SOURCE_FOLDER) + "/examples/sample/implosion/";
  for (Scheme scheme : test::kSchemes) {
    ASSERT_TRUE(
        test::come_back({sample + "DD0005", sample + "DD0006", sample + "DD0007"}, {scheme, "balanced", "fixed:8192"}));
  }
}

TEST(RealData, ComesBackWithTheDefaultOptions) {
  const auto programs = test::real_data();
  if (programs.empty()) GTEST_SKIP() << "VARVE_TEST_DATA is not set";
  for (const auto& dumps : programs) ASSERT_TRUE(test::come_back(dumps, {}));
}

}  // namespace
}  // namespace varve
