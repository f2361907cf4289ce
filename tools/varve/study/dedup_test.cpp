#include "study/dedup.h"

#include "study/compression.h"
#include "study/series_folder.h"

namespace varve {
namespace {

using test::joined;
using test::random_bytes;
using test::SeriesFolder;

const DedupMethod& method_of(const Dedup& dedup, const std::string& name) {
  for (const DedupMethod& method : dedup.methods) {
    if (method.name == name) return method;
  }
  ADD_FAILURE() << name << " is missing";
  return dedup.methods.front();
}

Dedup study(const StudySeries& series, const DedupOptions& options = {}) {
  const Result<Dedup> dedup = study_dedup(series, SamplePlan::whole(), options, null_progress());
  EXPECT_TRUE(dedup.ok()) << dedup.status().to_string();
  return *dedup;
}

double unique(const DedupMethod& method, ShareScope scope) { return method.total(scope).unique_bytes.value; }

/// Two ranks of sixteen blocks each. Rank 1 has the first four of rank 0, and its own fifth twice. In the second set,
/// rank 0 has two new blocks, and rank 1 one that was rank 0's in the first.
struct KnownShares : testing::Test {
  SeriesFolder folder;
  void SetUp() override {
    const ByteVector a = random_bytes(64_KiB, 1), b = random_bytes(64_KiB, 2), fresh = random_bytes(8_KiB, 3);
    const ByteSpan of_a(a), of_b(b);
    const ByteVector rank1 =
        joined({of_a.first(16_KiB), of_b.first(4_KiB), of_b.first(4_KiB), of_b.subspan(8_KiB, 40_KiB)});
    folder.write(1, 0, a);
    folder.write(1, 1, rank1);
    folder.write(2, 0, joined({of_a.first(56_KiB), fresh}));
    folder.write(2, 1, joined({ByteSpan(rank1).first(60_KiB), of_a.subspan(20_KiB, 4_KiB)}));
  }
};

TEST_F(KnownShares, AreCountedInEveryScope) {
  const Dedup dedup = study(folder.open());
  const DedupMethod& blocks = method_of(dedup, "fixed:4096");
  EXPECT_EQ(blocks.total(ShareScope::both).bytes, 256_KiB);
  EXPECT_EQ(blocks.total(ShareScope::both).chunks, 64u);
  // Within a rank of a set, rank 1 repeats one block.
  EXPECT_EQ(unique(blocks, ShareScope::within), (64 - 2) * 4096);
  // Across ranks, it has four blocks of rank 0, too, and in the second set one more.
  EXPECT_EQ(unique(blocks, ShareScope::ranks), (64 - 2 - 8 - 1) * 4096);
  // Across sets, rank 0 has two new ones, rank 1 one.
  EXPECT_EQ(unique(blocks, ShareScope::sets), (16 + 15 + 2 + 1) * 4096);
  EXPECT_EQ(unique(blocks, ShareScope::both), (16 + 11 + 2) * 4096);
  EXPECT_TRUE(blocks.total(ShareScope::both).unique_bytes.is_exact());
}

TEST_F(KnownShares, AreTheSameInTwiceAndHalfTheBlocksWhereTheyAreAligned) {
  const Dedup dedup = study(folder.open());
  EXPECT_EQ(unique(method_of(dedup, "fixed:512"), ShareScope::both), (16 + 11 + 2) * 4096);
  EXPECT_GT(unique(method_of(dedup, "fixed:8192"), ShareScope::both), (16 + 11 + 2) * 4096);
}

TEST_F(KnownShares, SayWhichVariablesChanged) {
  const Dedup dedup = study(folder.open());
  ASSERT_EQ(dedup.classes.size(), 1u);
  EXPECT_EQ(dedup.classes[0].bytes, 128_KiB) << "the first set has nothing to change from";
  EXPECT_EQ(dedup.classes[0].changed_bytes, 3 * 4_KiB);
}

TEST_F(KnownShares, GrowOverTheSeries) {
  const Dedup dedup = study(folder.open());
  const DedupMethod& blocks = method_of(dedup, "fixed:4096");
  ASSERT_EQ(blocks.sets.size(), 2u);
  EXPECT_EQ(blocks.sets[0][static_cast<size_t>(ShareScope::both)].unique_chunks.value, 27);
  EXPECT_EQ(blocks.sets[1][static_cast<size_t>(ShareScope::both)].unique_chunks.value, 2);
}

TEST(Dedup, FindsShiftedDataOnlyWithChunksThatFollowTheContents) {
  const SeriesFolder folder;
  const ByteVector data = random_bytes(4_MiB, 7);
  folder.write(1, 0, data);
  folder.write(2, 0, joined({as_bytes("a few bytes more at the front"), data}));
  const Dedup dedup = study(folder.open());
  const auto left_of_second = [&](const char* name) {
    const ShareCount& count = method_of(dedup, name).sets[1][static_cast<size_t>(ShareScope::both)];
    return count.unique_bytes.value / static_cast<double>(count.bytes);
  };
  for (const char* fixed : {"fixed:512", "fixed:4096", "fixed:8192", "fixed:65536"})
    EXPECT_EQ(left_of_second(fixed), 1) << fixed;
  EXPECT_LT(left_of_second("gear:8192"), 0.02);
  EXPECT_LT(left_of_second("rabin:8192"), 0.02);
}

TEST(Dedup, CutsAsASaveDoesWhateverTheSizeOfItsBatches) {
  const SeriesFolder folder;
  folder.write(1, 0, random_bytes(9_MiB + 4321, 8));
  folder.write(1, 1, random_bytes(123'457, 9));
  const StudySeries series = folder.open();
  const Dedup dedup = study(series);
  for (const DedupMethod& method : dedup.methods) {
    const std::unique_ptr<Chunker> chunker = make_chunker(parse_chunker(method.name).value()).value();
    uint64_t chunks = 0;
    for (const auto& [bytes, seed] : {std::pair<size_t, uint64_t>{9_MiB + 4321, 8}, {123'457, 9}}) {
      const ByteVector data = random_bytes(bytes, seed);
      for (size_t at = 0; at < data.size(); ++chunks) at += chunker->next(ByteSpan(data).subspan(at), data.size() - at);
    }
    EXPECT_EQ(method.total(ShareScope::both).chunks, chunks) << method.name;
    EXPECT_EQ(method.total(ShareScope::both).bytes, series.bytes()) << method.name;
  }
}

TEST(Dedup, CountsTheSizesOfChunks) {
  const SeriesFolder folder;
  folder.write(1, 0, random_bytes(1_MiB, 10));
  const Dedup dedup = study(folder.open());
  const DedupMethod& fixed = method_of(dedup, "fixed:8192");
  ASSERT_EQ(fixed.sizes.size(), 1u);
  EXPECT_EQ(fixed.sizes[0].bytes_from, 8192u);
  EXPECT_EQ(fixed.sizes[0].chunks, 128u);
  uint64_t bytes = 0;
  for (const SizeBin& bin : method_of(dedup, "gear:8192").sizes) bytes += bin.bytes;
  EXPECT_EQ(bytes, 1_MiB);
}

TEST(Dedup, KeepsToItsMemoryAndThenSaysHowSureItIs) {
  const SeriesFolder folder;
  const ByteVector data = random_bytes(8_MiB, 11);
  folder.write(1, 0, data);
  folder.write(2, 0, joined({ByteSpan(data).first(6_MiB), random_bytes(2_MiB, 12)}));
  DedupOptions options;
  options.chunkers = {"fixed:512"};
  options.memory_bytes = 64_KiB;
  const Dedup dedup = study(folder.open(), options);
  const DedupMethod& method = dedup.methods.front();
  EXPECT_GE(method.sampled_one_in, 8u);
  const ShareCount count = method.total(ShareScope::both);
  EXPECT_FALSE(count.unique_bytes.is_exact());
  EXPECT_NEAR(count.unique_bytes.value, static_cast<double>(10_MiB), static_cast<double>(1_MiB));
  EXPECT_LE(count.unique_bytes.low, static_cast<double>(10_MiB));
  EXPECT_GE(count.unique_bytes.high, static_cast<double>(10_MiB));
}

TEST(Dedup, OfASampleSaysHowSureItIs) {
  const SeriesFolder folder;
  for (int rank = 0; rank < 40; ++rank) {
    const ByteVector data = random_bytes(512_KiB, 20 + static_cast<uint64_t>(rank));
    folder.write(1, rank, data);
    folder.write(2, rank,
                 joined({ByteSpan(data).first(256_KiB), random_bytes(256_KiB, 90 + static_cast<uint64_t>(rank))}));
  }
  const StudySeries series = folder.open();
  const SamplePlan plan = SamplePlan::of(series, 10_MiB, 1);
  const Result<Dedup> dedup = study_dedup(series, plan, {}, null_progress());
  ASSERT_TRUE(dedup.ok()) << dedup.status().to_string();
  EXPECT_NEAR(dedup->sampled_share, 0.25, 0.1);
  const ShareCount count = method_of(*dedup, "fixed:4096").total(ShareScope::both);
  const double all = static_cast<double>(count.bytes);
  EXPECT_NEAR(count.unique_bytes.value / all, 0.75, 0.1);
  EXPECT_FALSE(count.unique_bytes.is_exact());
}

TEST(Dedup, KeepsWholeSetsWhenItIsStopped) {
  const SeriesFolder folder;
  for (int set : {1, 2, 3}) folder.write(set, 0, random_bytes(8_MiB, 13));
  const StudySeries series = folder.open();
  test::StoppingProgress progress(12_MiB);
  const Result<Dedup> dedup = study_dedup(series, SamplePlan::whole(), {}, progress);
  ASSERT_TRUE(dedup.ok());
  EXPECT_EQ(dedup->sets_done, 1u);
  for (const DedupMethod& method : dedup->methods) EXPECT_EQ(method.total(ShareScope::both).bytes, 8_MiB);
}

TEST(FingerprintSet, HoldsWhatWasInserted) {
  FingerprintSet set;
  for (uint64_t i = 0; i < 100'000; ++i) EXPECT_TRUE(set.insert(mix(i)));
  for (uint64_t i = 0; i < 100'000; ++i) EXPECT_FALSE(set.insert(mix(i)));
  EXPECT_EQ(set.size(), 100'000u);
  set.clear();
  EXPECT_TRUE(set.insert(0));
  EXPECT_FALSE(set.insert(0));
}

}  // namespace
}  // namespace varve
