// Stores whose bytes were changed, cut off, swapped, copied or lost.

#include <gtest/gtest.h>

#include <random>

#include "sets/damage.h"
#include "store/arena_reader.h"
#include "store/verify.h"

namespace varve {
namespace {

using test::DamagedStore;

struct Damaged : testing::Test {
  static void SetUpTestSuite() { damaged = new DamagedStore(24_KiB); }
  static void TearDownTestSuite() { delete damaged; }
  void TearDown() override { damaged->repair(); }
  static uint64_t bits_of(const std::string& path) { return 8 * damaged->original(path).size(); }
  static DamagedStore* damaged;
};
DamagedStore* Damaged::damaged = nullptr;

TEST_F(Damaged, StoreIsWholeBeforeItIsDamaged) { ASSERT_TRUE(damaged->is_contained(false)); }

TEST_F(Damaged, HeaderOrRecordIsReportedWhicheverBitFlips) {
  for (const std::string& path : damaged->vital_files()) {
    if (path.ends_with(".arena")) continue;
    for (uint64_t bit = 0; bit < bits_of(path); ++bit) ASSERT_TRUE(damaged->flip_is_contained(path, bit));
  }
}

TEST_F(Damaged, ArenaIsReportedWhicheverBitOfItsTablesFlips) {
  // The header, the first frame's header and table, and all after the last pack: nodes, index and footer.
  for (const std::string& path : damaged->arenas()) {
    for (uint64_t bit = 0; bit < 8 * 256; ++bit) ASSERT_TRUE(damaged->flip_is_reported(path, bit));
    for (uint64_t bit = bits_of(path) - 8 * 300; bit < bits_of(path); ++bit) {
      ASSERT_TRUE(damaged->flip_is_reported(path, bit));
    }
  }
}

TEST_F(Damaged, ArenaIsReportedAndHurtsNobodyElseWhicheverBitFlips) {
  std::mt19937_64 random(20240607);
  const std::vector<std::string> arenas = damaged->arenas();
  for (int trial = 0; trial < 1500; ++trial) {
    const std::string& path = arenas[random() % arenas.size()];
    ASSERT_TRUE(damaged->flip_is_contained(path, random() % bits_of(path)));
  }
}

TEST_F(Damaged, ArenaCutOffAtAnyFrameOrSectorIsReported) {
  for (const std::string& path : damaged->arenas()) {
    const ByteVector& whole = damaged->original(path);
    std::set<uint64_t> cuts;
    for (uint64_t bytes = 0; bytes < whole.size(); bytes += 512) cuts.insert(bytes);
    for (size_t at = 0; at + 4 < whole.size(); ++at) {
      if (as_text(ByteSpan(whole).subspan(at, 4)) == "VFRM") cuts.insert({at, at + kFrameHeaderBytes});
    }
    for (uint64_t bytes : {uint64_t{1}, uint64_t{63}, whole.size() - kArenaFooterBytes, whole.size() - 1})
      cuts.insert(bytes);
    for (uint64_t bytes : cuts) {
      damaged->replace(path, ByteSpan(whole).first(bytes));
      ASSERT_TRUE(damaged->is_contained()) << path << " cut off at " << bytes;
    }
    damaged->repair();
  }
}

TEST_F(Damaged, ArenaWithBytesAppendedIsReported) {
  const std::string path = damaged->arenas()[0];
  ByteVector longer = damaged->original(path);
  longer.resize(longer.size() + 700);
  damaged->replace(path, longer);
  EXPECT_TRUE(damaged->is_contained());
  damaged->repair();
}

TEST_F(Damaged, ArenasThatWereSwappedAreReported) {
  const std::vector<std::string> arenas = damaged->arenas();
  for (size_t i = 1; i < arenas.size(); ++i) {
    damaged->replace(arenas[0], damaged->original(arenas[i]));
    damaged->replace(arenas[i], damaged->original(arenas[0]));
    EXPECT_TRUE(damaged->is_contained());
    damaged->repair();
  }
}

TEST_F(Damaged, ArenaThatIsMissingIsReported) {
  for (const std::string& path : damaged->arenas()) {
    damaged->remove(path);
    EXPECT_TRUE(damaged->is_contained());
    damaged->repair();
  }
}

TEST_F(Damaged, ArenaCopiedUnderAnotherNameIsReportedAndHurtsNobody) {
  const std::string copy = parent_path(damaged->arenas()[0]) + "/" + UniqueId::random().value().hex() + ".arena";
  damaged->replace(copy, damaged->original(damaged->arenas()[0]));
  EXPECT_TRUE(damaged->is_contained());
  const auto store = test::open_store(damaged->fs());
  for (const Damage& damage : verify_store(*store, true).value().damages) EXPECT_TRUE(damage.affected_sets.empty());
  damaged->repair();
}

TEST_F(Damaged, RecordUnderAnotherNameIsReported) {
  for (const char* name : {"/store/sets/run/7.set", "/store/sets/run/2.set"}) {
    damaged->replace(name, damaged->original("/store/sets/run/1.set"));
    const auto store = test::open_store(damaged->fs());
    EXPECT_FALSE(verify_store(*store, false).value().whole());
    EXPECT_TRUE(test::restores_as(*store, {"run", 1}, damaged->snapshot({"run", 1})));
    damaged->repair();
  }
}

TEST_F(Damaged, SectorsOfZerosAreReported) {
  for (const std::string& path : damaged->arenas()) {
    const ByteVector& whole = damaged->original(path);
    for (size_t at = 0; at < whole.size(); at += 512) {
      ByteVector zeroed = whole;
      std::fill_n(zeroed.begin() + static_cast<ptrdiff_t>(at), std::min<size_t>(512, whole.size() - at), std::byte{0});
      if (zeroed == whole) continue;
      damaged->replace(path, zeroed);
      ASSERT_TRUE(damaged->is_contained()) << path << " at " << at;
    }
    damaged->repair();
  }
}

TEST_F(Damaged, IndexIsDisposableAndHealsWhicheverBitFlips) {
  std::mt19937_64 random(3);
  ASSERT_FALSE(damaged->disposable_files().empty());
  for (int trial = 0; trial < 300; ++trial) {
    const auto& runs = damaged->disposable_files();
    const std::string& path = runs[random() % runs.size()];
    ByteVector contents = damaged->original(path);
    const uint64_t bit = random() % (8 * contents.size());
    contents[bit / 8] ^= std::byte{1} << (bit % 8);
    damaged->replace(path, contents);
    {
      const auto store = test::open_store(damaged->fs());
      const VerifyReport report = verify_store(*store, true).value();
      EXPECT_TRUE(report.whole());
      ASSERT_EQ(report.damages.size(), 1u) << "bit " << bit;
      EXPECT_TRUE(report.damages[0].disposable);
      EXPECT_TRUE(report.damages[0].affected_sets.empty());
      EXPECT_NE(report.damages[0].what.to_string().find("rebuil"), std::string::npos);
    }
    damaged->repair();
  }
}

TEST_F(Damaged, IndexIsRebuiltByTheNextSaveWhichFindsAllThatIsKnown) {
  const test::TempFolder folder;
  for (bool verified : {false, true}) {
    for (const std::string& path : damaged->disposable_files()) {
      ByteVector contents = damaged->original(path);
      contents[verified ? contents.size() / 2 : 20] ^= std::byte{4};
      damaged->replace(path, contents);
    }
    const auto store = test::open_store(damaged->fs());
    ASSERT_TRUE(!verified || verify_store(*store, false).ok());
    ASSERT_TRUE(restore_set(*store, {"run", 2}, folder / (verified ? "a" : "b"), {}).ok());
    const Result<SaveReport> again = test::save(*store, folder / (verified ? "a" : "b"), "again", 1);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(again->record.new_bytes, 0u);
    EXPECT_TRUE(verify_store(*store, true).value().damages.empty());
    damaged->repair();
  }
}

TEST(LargerStore, ReportsEachOfManyFlippedBits) {
  DamagedStore larger(1_MiB);
  std::mt19937_64 random(99);
  for (int trial = 0; trial < 150; ++trial) {
    const std::string& path = larger.vital_files()[random() % larger.vital_files().size()];
    ASSERT_TRUE(larger.flip_is_reported(path, random() % (8 * larger.original(path).size())));
  }
}

}  // namespace
}  // namespace varve
