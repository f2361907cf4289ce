#include "engine/bundle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <set>

#include "core/memory_file_system.h"
#include "engine/inspect.h"
#include "engine/repair.h"
#include "engine/transfer.h"
#include "sets/saving.h"
#include "store/evacuation.h"
#include "store/prune.h"
#include "store/test_sets.h"
#include "store/verify.h"

namespace varve {
namespace {

using test::TempFolder;

constexpr size_t kCells = 20'000;

/// Files of several ranks, each with a density, two species that are shares of it, and a velocity, of so many cells.
class Fields final : public Source {
 public:
  static constexpr size_t kBytes = 8 * kCells;  ///< of a variable
  static constexpr const char* kNames[] = {"/Density", "/HI_Density", "/HeI_Density", "/velocity"};

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
    for (const char* name : kNames) {
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

/// A pack, by where it lies.
struct PackPlace {
  ArenaId arena;
  size_t ordinal = 0;
};

/// Bundles of which something is damaged or gone, and a deeper level that has all of them.
struct DamagedBundles : Bundles {
  void save_and_copy(Fields& fields, uint64_t step) {
    ASSERT_TRUE(save(fields, step).ok());
    ASSERT_TRUE(copy_set(*store, *far, {"run", step}).ok());
  }
  /// Packs in which variables predict each other, by their chain.
  std::vector<PackPlace> bundle_packs() const {
    std::vector<PackPlace> found;
    for (const ArenaId& id : store->list_arenas().value()) {
      const auto arena = store->arena(id).value();
      for (size_t pack = 0; pack < arena->index().packs.size(); ++pack) {
        const PackMeta meta = arena->read_pack_meta(pack).value();
        if (recipe_name(meta.recipe)->starts_with("across")) found.push_back({id, pack});
      }
    }
    return found;
  }
  FrameEntry entry_of(const PackPlace& place) const {
    return store->arena(place.arena).value()->index().packs.at(place.ordinal);
  }
  void rewrite(const ArenaId& arena, const std::function<void(ByteVector&)>& change) {
    test::rewrite(fs, store->arena_path(arena), change);
    store->drop_arena_cache();
  }

  /// The arena anew, with something else in place of one of its packs, all checksums right.
  void replace_pack(const PackPlace& place, const EncodedPack& other) {
    const auto arena = store->arena(place.arena).value();
    test::SetMaker maker(*store);
    const auto copy = [&](FrameKind kind, size_t ordinal, const FrameEntry& entry) {
      const ArenaReader::RawFrame frame = arena->read_raw(kind, ordinal).value();
      ASSERT_TRUE(maker.writer().append_copy(kind, entry, frame.meta, frame.body).ok());
    };
    for (size_t pack = 0; pack < arena->index().packs.size(); ++pack) {
      if (pack == place.ordinal) {
        maker.pack(other.meta, other.body);
      } else {
        copy(FrameKind::pack, pack, arena->index().packs[pack]);
      }
    }
    for (size_t node = 0; node < arena->index().nodes.size(); ++node)
      copy(FrameKind::node, node, arena->index().nodes[node]);
    ASSERT_TRUE(maker.seal().ok());
    ASSERT_TRUE(fs.remove(store->arena_path(place.arena)).ok());
    store->drop_arena_cache();
  }

  /// Verify tells of a damage to this set and to no other, and names the files whose restore fails; all others come
  /// back, and so does each variable that does not need what is gone. Returns the variables that are lost, by their
  /// file.
  std::set<std::pair<std::string, std::string>> expect_told(Fields& fields, uint64_t step) {
    const SetName name{"run", step};
    std::set<std::string> told;
    const VerifyReport report = verify_store(*store, true).value();
    EXPECT_FALSE(report.whole());
    for (const Damage& damage : report.damages) {
      EXPECT_EQ(damage.affected_sets, std::vector<std::string>{name.to_string()}) << damage.what.to_string();
      EXPECT_FALSE(damage.what.subject().empty()) << damage.what.to_string();
      told.insert(damage.affected_files.begin(), damage.affected_files.end());
    }
    expect_files(fields, name, told);
    return expect_variables(fields, name, told);
  }
  void expect_mended(Fields& fields, uint64_t step) {
    RepairOptions options;
    options.thread_count = 1;
    options.wait_seconds = 0;
    const auto nowhere = repair_store(*store, {}, options);
    ASSERT_TRUE(nowhere.ok()) << nowhere.status().to_string();
    EXPECT_TRUE(nowhere->mended_sets.empty());
    EXPECT_FALSE(nowhere->after.whole());
    const auto report = repair_store(*store, {{"far", far.get()}}, options);
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_TRUE(report->after.whole());
    EXPECT_EQ(report->mended_sets, (std::vector<SetName>{{"run", step}}));
    ASSERT_EQ(report->mended.size(), 1u);
    EXPECT_EQ(report->mended[0].source, "far");
    EXPECT_EQ(report->mended[0].packs, 1u);
    EXPECT_TRUE(test::is_whole(*store));
    expect_restores(fields, step);
  }

  MemoryFileSystem far_fs;
  std::unique_ptr<Store> far = test::make_store(far_fs);

 private:
  void expect_files(Fields& fields, const SetName& name, const std::set<std::string>& told) {
    TempFolder place;
    RestoreOptions options{.filter = {}, .sync = false, .thread_count = 2};
    const Result<RestoreReport> all = restore_set(*store, name, place / "all", options);
    EXPECT_EQ(all.status().code(), StatusCode::corrupt) << all.status().to_string();
    EXPECT_FALSE(all.status().subject().empty()) << all.status().to_string();
    EXPECT_FALSE(std::filesystem::exists(place / "all")) << "a failed restore left files";
    options.keep_going = true;
    const Result<RestoreReport> some = restore_set(*store, name, place / "some", options);
    ASSERT_TRUE(some.ok()) << some.status().to_string();
    std::set<std::string> lost;
    for (const std::string& path : some->lost_files) lost.insert(name.to_string() + ":" + path);
    EXPECT_EQ(lost, told);
    for (size_t i = 0; i < fields.files().size(); ++i) {
      const std::string& path = fields.files()[i].path;
      if (lost.contains(name.to_string() + ":" + path)) {
        EXPECT_FALSE(std::filesystem::exists(place / ("some/" + path))) << path;
        continue;
      }
      EXPECT_EQ(read_file(posix_file_system(), place / ("some/" + path), 64_MiB).value(), fields.bytes()[i]) << path;
    }
  }
  std::set<std::pair<std::string, std::string>> expect_variables(Fields& fields, const SetName& name,
                                                                 const std::set<std::string>& told) {
    std::set<std::pair<std::string, std::string>> lost;
    std::set<std::string> files;
    for (size_t i = 0; i < fields.files().size(); ++i) {
      const std::string& path = fields.files()[i].path;
      for (size_t variable = 0; variable < std::size(Fields::kNames); ++variable) {
        ByteVector bytes;
        const Status read = read_set_file(*store, name, path, Fields::kNames[variable], [&](ByteSpan part) -> Status {
          bytes.insert(bytes.end(), part.begin(), part.end());
          return {};
        });
        const ByteSpan saved = ByteSpan(fields.bytes()[i]).subspan(variable * Fields::kBytes, Fields::kBytes);
        EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), saved.begin())) << path << Fields::kNames[variable];
        if (read.ok()) {
          EXPECT_EQ(bytes.size(), saved.size()) << path << Fields::kNames[variable];
          continue;
        }
        EXPECT_EQ(read.code(), StatusCode::corrupt) << read.to_string();
        lost.emplace(path, Fields::kNames[variable]);
        files.insert(name.to_string() + ":" + path);
      }
    }
    EXPECT_EQ(files, told);
    return lost;
  }
};

TEST_F(DamagedBundles, AreToldAndHurtNothingElseWhicheverOfTheirBytesIsDamaged) {
  constexpr uint32_t ranks = 6;
  Fields fields(ranks, 6);
  save_and_copy(fields, 1);
  const std::vector<PackPlace> packs = bundle_packs();
  ASSERT_GT(packs.size(), 2u);
  std::mt19937_64 random(6);
  for (const PackPlace& place : {packs.front(), packs[packs.size() / 2], packs.back()}) {
    const FrameEntry pack = entry_of(place);
    const uint64_t meta = pack.offset + kFrameHeaderBytes, body = meta + pack.meta_bytes;
    for (const uint64_t at : {meta + random() % pack.meta_bytes, body, body + random() % pack.body_bytes,
                              body + random() % pack.body_bytes, body + pack.body_bytes - 1}) {
      SCOPED_TRACE("pack " + std::to_string(place.ordinal) + ", byte " + std::to_string(at - pack.offset));
      const auto flip = [&](ByteVector& raw) { raw.at(at) ^= std::byte{16}; };
      rewrite(place.arena, flip);
      const auto lost = expect_told(fields, 1);
      EXPECT_FALSE(lost.empty());
      EXPECT_LT(lost.size(), 3 * ranks) << "there are other packs";
      for (const auto& [path, variable] : lost) EXPECT_NE(variable, "/velocity") << path;
      rewrite(place.arena, flip);
      ASSERT_TRUE(test::is_whole(*store));
    }
  }
}

TEST_F(DamagedBundles, AreMendedFromAnotherLevel) {
  Fields fields(3, 7);
  save_and_copy(fields, 1);
  const PackPlace place = bundle_packs().at(1);
  const FrameEntry pack = entry_of(place);
  rewrite(place.arena,
          [&](ByteVector& raw) { raw.at(pack.offset + kFrameHeaderBytes + pack.meta_bytes + 7) ^= std::byte{16}; });
  EXPECT_FALSE(expect_told(fields, 1).empty());
  expect_mended(fields, 1);
}

TEST_F(DamagedBundles, ThatDecodeToOtherNumbersLoseTheChunksWhoseScoresAreOthers) {
  std::mt19937_64 random(11);
  for (int repeat = 0; repeat < 8; ++repeat) {
    Fields fields(3, 11);
    const SetName name{"run", 1};
    ASSERT_TRUE(save(fields, 1).ok());
    const PackPlace place = bundle_packs().front();
    const auto arena = store->arena(place.arena).value();
    const ArenaReader::RawFrame frame = arena->read_raw(FrameKind::pack, place.ordinal).value();
    EncodedPack other{arena->read_pack_meta(place.ordinal).value(), ByteVector(frame.body.begin(), frame.body.end())};
    const size_t at = random() % other.body.size();
    SCOPED_TRACE("byte " + std::to_string(at) + " of a body of " + std::to_string(other.body.size()));
    other.body[at] ^= static_cast<std::byte>(1u << random() % 8);
    replace_pack(place, other);
    const auto lost = expect_told(fields, 1);
    EXPECT_FALSE(lost.empty());
    for (const auto& [path, variable] : lost) EXPECT_NE(variable, "/velocity") << path;
    ASSERT_TRUE(Catalog(*store).remove(name).ok());
    for (const ArenaId& id : store->list_arenas().value()) ASSERT_TRUE(fs.remove(store->arena_path(id)).ok());
    store->drop_arena_cache();
  }
}

TEST_F(DamagedBundles, OfWhichOnlySomeRunsAreHeldTellWhatIsMissing) {
  Fields fields(3, 8);
  save_and_copy(fields, 1);
  const PackPlace place = bundle_packs().front();
  Pack whole = store->arena(place.arena).value()->read_pack(place.ordinal).value();
  // Parts of several variables, of what predicts and of what is predicted.
  std::vector<bool> held;
  for (size_t chunk = 0; chunk < whole.meta().chunks.size(); ++chunk) held.push_back(chunk % 4 < 2);
  ASSERT_GT(held.size(), 8u);
  replace_pack(place, encode_partial_pack(whole.meta(), held, bytes_of_chunks(whole, held).value()).value());
  const auto lost = expect_told(fields, 1);
  EXPECT_GT(lost.size(), 1u);
  for (const auto& [path, variable] : lost) EXPECT_NE(variable, "/velocity") << path;
  expect_mended(fields, 1);
}

TEST_F(DamagedBundles, ThatAPruneHasThinnedAreToldAndMendedLikeAnyPack) {
  Fields fields(3, 9), later(3, 10);
  ASSERT_TRUE(save(fields, 1).ok());
  // The second set has nothing of the first but a part of one variable that is predicted.
  constexpr size_t share = 2 * Fields::kBytes, share_bytes = 64_KiB;
  for (size_t i = 0; i < later.files().size(); ++i) {
    const auto from = fields.bytes()[i].begin() + share;
    std::copy(from, from + share_bytes, later.bytes()[i].begin() + share);
  }
  save_and_copy(later, 2);
  PruneOptions options;
  options.keep.last = 1;
  options.live_share_min = 1;
  options.wait_seconds = 0;
  ASSERT_TRUE(prune_store(*store, options).ok());
  std::vector<PackPlace> thinned = bundle_packs();
  std::erase_if(thinned, [&](const PackPlace& place) { return entry_of(place).missing_bytes == 0; });
  ASSERT_FALSE(thinned.empty()) << "a prune leaves out what nobody needs of a bundle";
  ASSERT_TRUE(test::is_whole(*store));
  expect_restores(later, 2);

  const FrameEntry pack = entry_of(thinned.front());
  rewrite(thinned.front().arena,
          [&](ByteVector& raw) { raw.at(pack.offset + kFrameHeaderBytes + pack.meta_bytes + 7) ^= std::byte{16}; });
  for (const auto& [path, variable] : expect_told(later, 2)) EXPECT_EQ(variable, "/HeI_Density") << path;
  expect_mended(later, 2);
}

}  // namespace
}  // namespace varve
