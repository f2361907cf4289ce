#include "engine/bundle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <random>

#include "core/memory_file_system.h"
#include "engine/inspect.h"
#include "sets/saving.h"
#include "store/commit.h"
#include "store/prune.h"
#include "store/verify.h"

namespace varve {
namespace {

using test::TempFolder;

constexpr size_t kCells = 20'000;

/// Files of several ranks, each with a density, two species that are shares of it, and a velocity, of so many cells.
class Fields final : public Source {
 public:
  Fields(uint32_t ranks, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> noise(0, 0.5);
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      ByteVector& bytes = bytes_.emplace_back(4 * kBytes);
      for (size_t i = 0; i < kCells; ++i) {
        const double density = std::exp(noise(random));
        const double values[] = {density, 0.76 * density, 0.24 * density, noise(random)};
        for (size_t variable = 0; variable < 4; ++variable)
          std::memcpy(bytes.data() + variable * kBytes + 8 * i, &values[variable], 8);
      }
      SourceFile file;
      file.path = "dump.cpu" + std::to_string(rank);
      file.mode = 0644;
      file.bytes = bytes.size();
      file.rank = rank;
      files_.push_back(file);
    }
  }
  const std::vector<SourceFile>& files() const override { return files_; }
  Result<std::vector<Layout>> layouts(ProgressSink&) override {
    Layout layout{.format = "hdf5", .variables = {}};
    uint64_t at = 0;
    for (const char* name : {"/Density", "/HI_Density", "/HeI_Density", "/velocity"}) {
      layout.variables.push_back({.name = name,
                                  .type = {ElementKind::floating, ByteOrder::little, 8},
                                  .shape = {kCells},
                                  .extents = {{at, kBytes}},
                                  .run_shape = {}});
      at += kBytes;
    }
    return std::vector<Layout>(files_.size(), layout);
  }
  Status read(uint32_t file, uint64_t offset, MutableByteSpan into) override {
    std::copy_n(bytes_[file].begin() + static_cast<ptrdiff_t>(offset), into.size(), into.begin());
    return {};
  }
  Result<uint64_t> hole_bytes(uint32_t, uint64_t, uint64_t) override { return uint64_t{0}; }
  Status check_unchanged() override { return {}; }

  std::vector<ByteVector>& bytes() { return bytes_; }

 private:
  static constexpr size_t kBytes = 8 * kCells;
  std::vector<SourceFile> files_;
  std::vector<ByteVector> bytes_;
};

struct Bundles : testing::Test {
  MemoryFileSystem fs;
  std::unique_ptr<Store> store = test::make_store(fs);

  Result<SaveReport> save(Fields& fields, uint64_t step, const std::string& codec = "balanced") {
    SaveOptions options = test::save_options("run", step);
    options.codec = CodecPolicy::parse(codec).value();
    options.pack_bytes = 256_KiB;
    return save_groups(*store, {&fields}, {"run", step}, options, null_progress(),
                       [&](WriterLease& lease, const SetRecord& record) { return lease.commit(record); });
  }
  void expect_restores(Fields& fields, uint64_t step) {
    TempFolder place;
    const RestoreOptions options{.filter = {}, .sync = false, .thread_count = 2};
    const Result<RestoreReport> restored = restore_set(*store, {"run", step}, place / "to", options);
    ASSERT_TRUE(restored.ok()) << restored.status().to_string();
    for (size_t i = 0; i < fields.files().size(); ++i) {
      const ByteVector& bytes = fields.bytes()[i];
      std::ifstream file(place / "to/" + fields.files()[i].path, std::ios::binary);
      const std::string text{std::istreambuf_iterator<char>(file), {}};
      EXPECT_TRUE(text == as_text(bytes)) << fields.files()[i].path;
    }
  }
  std::map<std::string, ShareStatistics> chains() { return store_statistics(*store).value().chains; }
};

TEST_F(Bundles, OfVariablesThatGoTogetherTakeAsMuchAsOneOfThem) {
  Fields fields(3, 1);
  ASSERT_TRUE(save(fields, 1).ok());
  expect_restores(fields, 1);
  EXPECT_TRUE(chains().contains("across+magnitudes"));
  const StoreStatistics statistics = store_statistics(*store).value();
  size_t bundles = 0;
  for (const auto& [key, share] : statistics.classes) {
    if (key.find(" and 2 more}_F64LE_Array1D") == std::string::npos) continue;
    ++bundles;
    EXPECT_EQ(share.raw_bytes, 3 * 3 * 8 * kCells);
    EXPECT_LT(share.stored_bytes, 3 * 8 * kCells + 3 * 8 * kCells / 4);
  }
  EXPECT_EQ(bundles, 1u);
  EXPECT_TRUE(statistics.classes.contains("/velocity_F64LE_Array1D"));
  EXPECT_TRUE(test::is_whole(*store));
}

TEST_F(Bundles, AreCutIntoTheChunksOfTheirVariables) {
  Fields fields(3, 2);
  ASSERT_TRUE(save(fields, 1, "zstd").ok());
  const Result<SaveReport> again = save(fields, 2);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->record.new_bytes, 0u);
  expect_restores(fields, 2);
}

TEST_F(Bundles, ComeBackWhereOnlySomeChunksOfSomeVariablesWereNew) {
  std::mt19937_64 random(3);
  Fields fields(3, 3);
  ASSERT_TRUE(save(fields, 1).ok());
  for (uint64_t step = 2; step < 12; ++step) {
    for (ByteVector& bytes : fields.bytes()) {
      for (uint64_t changes = random() % 40; changes > 0; --changes) bytes[random() % bytes.size()] ^= std::byte{4};
    }
    ASSERT_TRUE(save(fields, step, step % 3 == 0 ? "best" : "balanced").ok());
    expect_restores(fields, step);
  }
  // What is left of packs of which the newest set needs little is encoded anew.
  PruneOptions options;
  options.keep.last = 1;
  options.live_share_min = 1;
  options.wait_seconds = 0;
  ASSERT_TRUE(prune_store(*store, options).ok());
  expect_restores(fields, 11);
  EXPECT_TRUE(test::is_whole(*store));
}

TEST_F(Bundles, AreMadeForFastCodecsToo) {
  Fields fields(3, 5);
  ASSERT_TRUE(save(fields, 1, "fast").ok());
  expect_restores(fields, 1);
  EXPECT_TRUE(chains().contains("across+planes"));
}

TEST_F(Bundles, AreNotMadeForACodecThatWasNamed) {
  Fields fields(2, 4);
  ASSERT_TRUE(save(fields, 1, "lorenzo+planes").ok());
  for (const auto& [key, share] : store_statistics(*store).value().classes)
    EXPECT_EQ(key.find('{'), std::string::npos) << key;
}

}  // namespace
}  // namespace varve
