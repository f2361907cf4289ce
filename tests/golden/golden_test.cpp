#include "golden/golden.h"

#include <gtest/gtest.h>

#include <set>

#include "codec/numbers.h"
#include "core/memory_file_system.h"
#include "engine/inspect.h"
#include "engine/transfer.h"
#include "store/prune.h"

namespace varve {
namespace {

using test::GoldenSet;

/// A golden store, copied to memory.
struct Golden : testing::TestWithParam<test::GoldenStore> {
  void SetUp() override {
    if (!ScoreFunction::create(GetParam().algorithm, GetParam().score_bytes).ok())
      GTEST_SKIP() << "this build lacks its scores";
    namespace stdfs = std::filesystem;
    const std::string folder = std::string(VARVE_GOLDEN_FOLDER) + "/" + GetParam().folder;
    ASSERT_TRUE(fs.create_directory("/store").ok());
    // Version control keeps no empty folders.
    for (const char* name : {"index", "writers", "condemned"})
      ASSERT_TRUE(fs.create_directory("/store/" + std::string(name)).ok());
    for (const auto& entry : stdfs::recursive_directory_iterator(folder)) {
      const std::string path = "/store/" + entry.path().lexically_relative(folder).string();
      if (entry.is_directory()) {
        ASSERT_TRUE(fs.create_directory(path).ok());
        continue;
      }
      const ByteVector contents = read_file(posix_file_system(), entry.path().string(), 1_MiB).value();
      ASSERT_TRUE(fs.create(path).value()->write_at(0, contents).ok());
    }
    store = test::open_store(fs);
    ASSERT_NE(store, nullptr);
  }

  /// Whether this build has all codecs of the set: its own, and those of earlier sets whose packs it shares.
  bool readable(const GoldenSet& set) const {
    if (find_codec(CodecNumber::lz4).ok()) return true;
    const test::TempFolder folder;
    const Status restored = restore_set(*store, set.name, folder / "set", {.filter = {}, .sync = false}).status();
    return restored.code() != StatusCode::unsupported;
  }
  static test::Snapshot expected(const SetName& name) {
    const test::TempFolder folder;
    test::make_golden_folder(folder.path(), name);
    return test::snapshot_of(folder.path());
  }

  MemoryFileSystem fs;
  std::unique_ptr<Store> store;
};

TEST_P(Golden, SetsComeBackAsTheyWereSaved) {
  std::vector<SetName> names;
  for (const GoldenSet& set : test::golden_sets()) {
    names.push_back(set.name);
    EXPECT_TRUE(!readable(set) || test::restores_as(*store, set.name, expected(set.name))) << set.way.name();
  }
  EXPECT_EQ(Catalog(*store).sets().value(), names);
}

TEST_P(Golden, StoreIsWhole) {
  for (const GoldenSet& set : test::golden_sets()) {
    if (!readable(set)) GTEST_SKIP() << "this build lacks a codec";
  }
  EXPECT_TRUE(test::is_whole(*store));
}

TEST_P(Golden, StoreHoldsWhatTheFormatCanExpress) {
  const StoreStatistics statistics = store_statistics(*store).value();
  for (const char* chain :
       {"lorenzo+shuffle+zstd", "lorenzo+bitshuffle+zstd", "delta+shuffle+zstd", "shuffle+lz4", "fpc+zstd", "fpzip",
        "gzip", "lzma", "store", "shuffle+zstd", "lorenzo+planes", "lorenzo+magnitudes", "signlast+planes",
        "rotate+shuffle+zstd", "columns+zstd", "across+magnitudes", "blosc+shuffle+zstd"}) {
    EXPECT_TRUE(!CodecChain::parse(chain).ok() || statistics.chains.contains(chain)) << chain;
  }
  EXPECT_TRUE(std::any_of(statistics.chains.begin(), statistics.chains.end(),
                          [](const auto& chain) { return chain.first.starts_with("inflate"); }));
  uint64_t missing_bytes = 0;
  for (const ArenaId& id : store->list_arenas().value()) {
    const auto arena = store->arena(id).value();
    for (const FrameEntry& pack : arena->index().packs) missing_bytes += pack.missing_bytes;
  }
  EXPECT_GT(missing_bytes, 0u) << "no thinned pack";
  EXPECT_GT(inspect_set(*store, {"chains", 2}).value().pattern_bytes, 0u);
  const std::vector<FileDetails> files = inspect_set(*store, test::kSmallVariablesSet).value().files;
  ASSERT_FALSE(files.empty());
  ASSERT_EQ(files[0].variables.size(), 3u);
  EXPECT_EQ(files[0].variables[1].name, "/time");
  EXPECT_EQ(files[0].variables[2].type.name(), "I32BE");
}

/// How the parts of a pack are predicted, if its chain begins with across: FORMAT.md, "Codec recipe" and "across".
std::vector<uint8_t> predictions_of(ByteSpan recipe) {
  ByteReader reader(recipe);
  const bool has_stages = reader.u8().value() > 0;
  if (!has_stages || reader.varint().value() != static_cast<uint64_t>(CodecNumber::across)) return {};
  reader.varint().value();  // the bytes it took in
  ByteReader params(reader.bytes(reader.varint().value()).value());
  params.u8().value();  // the numbers' format
  std::vector<uint8_t> predictions(params.varint().value());
  for (uint8_t& prediction : predictions) {
    const uint64_t elements = params.varint().value();
    prediction = params.u8().value();
    if (prediction != 0) params.varint().value();  // the reference
    if (prediction != 1) read_runs(params, elements).value();
  }
  return predictions;
}

TEST_P(Golden, StoreHoldsBundlesOfEachPrediction) {
  std::set<uint8_t> predictions;
  std::set<ArenaId> arenas;
  for (const GroupRecord& group : Catalog(*store).read(test::kBundleSet).value().groups) arenas.insert(group.hint);
  for (const ArenaId& id : arenas) {
    const auto arena = store->arena(id).value();
    for (size_t pack = 0; pack < arena->index().packs.size(); ++pack) {
      const PackMeta meta = arena->read_pack_meta(pack).value();
      const std::vector<uint8_t> parts = predictions_of(meta.recipe);
      if (parts.empty()) continue;
      EXPECT_EQ(*recipe_name(meta.recipe), "across+magnitudes");
      EXPECT_EQ(meta.class_key, "/Gas/{Density and 3 more}_F64LE_Array1D");
      predictions.insert(parts.begin(), parts.end());
    }
  }
  EXPECT_EQ(predictions, (std::set<uint8_t>{0, 1, 2}));
}

TEST_P(Golden, StoreTakesNewSetsThatShareWithTheOldOnes) {
  const test::TempFolder folder;
  const std::vector<GoldenSet> sets = test::golden_sets();
  const GoldenSet old =
      *std::find_if(sets.begin(), sets.end(), [](const GoldenSet& set) { return set.name.job == "chains"; });
  test::make_golden_folder(folder.path(), old.name);
  const Result<SaveReport> saved =
      save_folder(*store, folder.path(), test::options_of(old.way, "new", 1), test::layout_service());
  ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  EXPECT_EQ(saved->record.new_bytes, 0u);
  EXPECT_TRUE(test::restores_as(*store, {"new", 1}, test::snapshot_of(folder.path())));
}

TEST_P(Golden, SetsCanBeCopiedToANewStoreAndEncodedAnew) {
  for (const char* recode : {"", "balanced"}) {
    MemoryFileSystem target_fs;
    ASSERT_TRUE(Store::create(target_fs, "/t", {GetParam().algorithm, GetParam().score_bytes}).ok());
    const auto target = Store::open(target_fs, "/t").value();
    TransferOptions options;
    if (*recode != 0) options.recode = CodecPolicy::parse(recode).value();
    for (const GoldenSet& set : test::golden_sets()) {
      const Result<TransferReport> report = copy_set(*store, *target, set.name, options);
      ASSERT_TRUE(report.ok()) << report.status().to_string();
      EXPECT_TRUE(!readable(set) || test::restores_as(*target, set.name, expected(set.name))) << set.way.name();
    }
    EXPECT_TRUE(sets_lacking(*store, *target, "").value().empty());
    EXPECT_EQ(target->backend().list("/t/writers").value().size(), 0u);
  }
}

TEST_P(Golden, StoreCanBePruned) {
  PruneOptions options;
  options.keep.last = 2;
  ASSERT_TRUE(prune_store(*store, options).ok());
  for (const GoldenSet& set : test::golden_sets()) {
    const bool kept = Catalog(*store).read(set.name).ok();
    EXPECT_TRUE(!kept || !readable(set) || test::restores_as(*store, set.name, expected(set.name)));
  }
}

INSTANTIATE_TEST_SUITE_P(Stores, Golden, testing::ValuesIn(test::golden_stores()),
                         [](const testing::TestParamInfo<test::GoldenStore>& store) { return store.param.folder; });

}  // namespace
}  // namespace varve
