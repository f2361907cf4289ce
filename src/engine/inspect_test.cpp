#include "engine/inspect.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/memory_file_system.h"
#include "sets/saving.h"
#include "store/stored_copies.h"

namespace varve {
namespace {

using test::TempFolder;

constexpr const char* kSidecar =
    R"({ "variables": [ { "name": "/Density", "type": "f64", "shape": [1000], "offset": 16 },
                                                     { "name": "/Energy", "type": "f64", "shape": [1000] } ] })";

struct Inspect : testing::Test {
  MemoryFileSystem fs;
  std::unique_ptr<Store> store = test::make_store(fs);
  TempFolder folder;

  /// Header, two fields, tail.
  static ByteVector contents(uint64_t density_seed) {
    ByteVector bytes(16, std::byte{'h'});
    for (uint64_t seed : {density_seed, uint64_t{50}}) {
      const ByteVector field = test::smooth_field(1000, seed);
      bytes.insert(bytes.end(), field.begin(), field.end());
    }
    const ByteVector tail = test::random_bytes(100, 3);
    bytes.insert(bytes.end(), tail.begin(), tail.end());
    return bytes;
  }
  void save(uint64_t step, const ByteVector& bytes) {
    test::write_file(folder / "rank0.bin", bytes);
    test::write_file(folder / "rank0.bin.varve-layout", kSidecar);
    const Result<SaveReport> saved = test::save(*store, folder.path(), "run", step);
    ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  }
  Result<ByteVector> read(const std::string& path, const std::string& variable) {
    ByteVector all;
    VARVE_TRY(read_set_file(*store, {"run", 1}, path, variable, [&](ByteSpan part) -> Status {
      all.insert(all.end(), part.begin(), part.end());
      return {};
    }));
    return all;
  }
};

TEST_F(Inspect, TellsWhatASetConsistsOf) {
  save(1, contents(1));
  const Result<SetDetails> details = inspect_set(*store, {"run", 1});
  ASSERT_TRUE(details.ok());
  ASSERT_EQ(details->files.size(), 2u);
  const FileDetails& file = details->files[0];
  EXPECT_EQ(file.path, "rank0.bin");
  EXPECT_EQ(file.bytes, 16'116u);
  EXPECT_EQ(file.skeleton_bytes, 116u);
  ASSERT_EQ(file.variables.size(), 2u);
  EXPECT_EQ(file.variables[0].name, "/Density");
  EXPECT_EQ(file.variables[0].class_key, "/Density_F64LE_Array1D");
  EXPECT_EQ(file.variables[0].bytes, 8000u);
  EXPECT_EQ(details->own_bytes + details->pattern_bytes, details->record.raw_bytes);
  FileFilter none;
  none.globs = {"*.none"};
  EXPECT_TRUE(inspect_set(*store, {"run", 1}, none).value().files.empty());
}

TEST_F(Inspect, PutsLoneArraysOfFilesWithNumbersIntoOneClass) {
  std::string file("\x93NUMPY\x01\0\x40\0", 10);  // as numpy.save() writes it
  file += "{'descr': '<f8', 'fortran_order': False, 'shape': (20,), }";
  file.resize(10 + 0x40, ' ');
  file += std::string(160, 'x');
  for (const char* name : {"density.0.npy", "density.1.npy", "energy.0.npy"})
    test::write_file(folder / name, as_bytes(file));
  ASSERT_TRUE(test::save(*store, folder.path(), "run", 1).ok());
  std::vector<std::string> keys;
  const SetDetails details = inspect_set(*store, {"run", 1}).value();
  for (const FileDetails& saved : details.files) {
    EXPECT_EQ(saved.variables.at(0).name, "/array");
    keys.push_back(saved.variables.at(0).class_key);
  }
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(keys, (std::vector<std::string>{"/density.#.npy_F64LE_Array1D", "/density.#.npy_F64LE_Array1D",
                                            "/energy.#.npy_F64LE_Array1D"}));
}

TEST_F(Inspect, PutsTheLayersOfANetworkIntoOneClass) {
  const std::string header = R"({"layers.0.weight":{"dtype":"F32","shape":[50],"data_offsets":[0,200]},)"
                             R"("layers.11.weight":{"dtype":"F32","shape":[50],"data_offsets":[200,400]},)"
                             R"("layers.0.bias1":{"dtype":"F32","shape":[50],"data_offsets":[400,600]}})";
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  ASSERT_LT(header.size(), 256U);
  test::write_file(folder / "model.safetensors", as_bytes(file + header + std::string(600, 'x')));
  ASSERT_TRUE(test::save(*store, folder.path(), "run", 1).ok());
  const SetDetails details = inspect_set(*store, {"run", 1}).value();
  std::vector<std::pair<std::string, std::string>> classes;
  for (const VariableDetails& variable : details.files.at(0).variables)
    classes.emplace_back(variable.name, variable.class_key);
  EXPECT_EQ(classes,
            (std::vector<std::pair<std::string, std::string>>{{"/layers.0.weight", "/layers/#/weight_F32LE_Array1D"},
                                                              {"/layers.11.weight", "/layers/#/weight_F32LE_Array1D"},
                                                              {"/layers.0.bias1", "/layers/#/bias1_F32LE_Array1D"}}));
}

TEST_F(Inspect, TellsWithWhichEarlierSetsASetShares) {
  save(1, contents(1));
  save(2, contents(2));
  const SetDetails details = inspect_set(*store, {"run", 2}).value();
  EXPECT_GT(details.shared_bytes, 8000u);
  EXPECT_GT(details.own_bytes, 0u);
  EXPECT_EQ(details.shared_with.at({"run", 1}), details.shared_bytes);
  EXPECT_EQ(inspect_set(*store, {"run", 1}).value().shared_bytes, 0u);
}

TEST_F(Inspect, NamesEachEarlierSetThatHasTheSameBytes) {
  for (uint64_t step : {1u, 2u, 3u}) save(step, contents(1));
  auto shared = [&](uint64_t step) { return inspect_set(*store, {"run", step}).value(); };
  const uint64_t all = shared(1).own_bytes;
  EXPECT_EQ(shared(3).own_bytes, 0u);
  EXPECT_EQ(shared(3).shared_bytes, all);
  EXPECT_EQ(shared(3).shared_with, (std::map<SetName, uint64_t>{{{"run", 1}, all}, {{"run", 2}, all}}));
  ASSERT_TRUE(Catalog(*store).remove({"run", 1}).ok());
  EXPECT_EQ(shared(2).own_bytes, all);
  EXPECT_TRUE(shared(2).shared_with.empty());
  EXPECT_EQ(shared(3).shared_with, (std::map<SetName, uint64_t>{{{"run", 2}, all}}));
  FileFilter sidecar;
  sidecar.globs = {"*.varve-layout"};
  const SetDetails narrow = inspect_set(*store, {"run", 3}, sidecar).value();
  EXPECT_EQ(narrow.shared_bytes + narrow.pattern_bytes, narrow.files.at(0).bytes);
}

TEST_F(Inspect, GivesFilesAndVariables) {
  const ByteVector bytes = contents(1);
  save(1, bytes);
  EXPECT_EQ(read("rank0.bin", "").value(), bytes);
  EXPECT_EQ(read("rank0.bin", "/Density").value(), test::smooth_field(1000, 1));
  EXPECT_EQ(read("rank0.bin", "/Energy").value(), test::smooth_field(1000, 50));
  EXPECT_EQ(read("rank0.bin", "/Pressure").status().code(), StatusCode::not_found);
  EXPECT_EQ(read("rank9.bin", "").status().code(), StatusCode::not_found);
  const Status stopped =
      read_set_file(*store, {"run", 1}, "rank0.bin", "", [](ByteSpan) { return Status::cancelled(); });
  EXPECT_EQ(stopped.code(), StatusCode::cancelled);
}

TEST_F(Inspect, NamesSmallVariablesAndGivesThem) {
  auto bytes_at = [](double time) {
    ByteVector bytes(16 + 8 + 800 + 8);
    store_le(bytes.data() + 16, std::bit_cast<uint64_t>(time));
    return bytes;
  };
  const ByteVector first = bytes_at(1.5), second = bytes_at(4);
  for (const auto& [step, bytes] : {std::pair(uint64_t{1}, &first), std::pair(uint64_t{2}, &second)}) {
    test::write_file(folder / "rank0.bin", *bytes);
    test::write_file(folder / "rank0.bin.varve-layout", R"({ "variables": [
      { "name": "/time", "type": "f64", "shape": [], "offset": 16 },
      { "name": "/field", "type": "f64", "shape": [100] },
      { "name": "/cycle", "type": "i32", "shape": [2] } ] })");
    ASSERT_TRUE(test::save(*store, folder.path(), "run", step).ok());
  }
  const SetDetails details = inspect_set(*store, {"run", 1}).value();
  const FileDetails& file = details.files[0];
  ASSERT_EQ(file.variables.size(), 3u);
  EXPECT_EQ(file.variables[0].name, "/field");
  EXPECT_EQ(file.variables[1].name, "/time");
  EXPECT_EQ(file.variables[1].type.name(), "F64LE");
  EXPECT_EQ(file.variables[1].class_key, "skeleton/raw");
  EXPECT_EQ(file.variables[2].name, "/cycle");
  EXPECT_EQ(file.variables[2].shape, std::vector<uint64_t>{2});
  EXPECT_EQ(file.skeleton_bytes, 16u);
  EXPECT_EQ(file.unnamed_variable_count, 0u);
  const ByteVector time = read("rank0.bin", "/time").value();
  ASSERT_EQ(time.size(), 8u);
  EXPECT_EQ(std::bit_cast<double>(load_le<uint64_t>(time.data())), 1.5);

  const SetDifference difference = diff_sets(*store, {"run", 1}, {"run", 2}).value();
  ASSERT_EQ(difference.changes.size(), 1u);
  EXPECT_EQ(difference.changes[0].variable, "/time");
  EXPECT_EQ(difference.changes[0].difference_max, 2.5);
}

/// A file of `count` small variables, whose names have `name_bytes` bytes.
void write_small_variables(const std::string& path, size_t count, size_t name_bytes) {
  std::string variables;
  for (size_t i = 0; i < count; ++i) {
    std::string name = "/" + std::to_string(i);
    name.resize(name_bytes, 'x');
    variables += (i == 0 ? "" : ",") + (R"({ "name": ")" + name + R"(", "type": "f64", "shape": [] })");
  }
  test::write_file(path, ByteVector(8 * count));
  test::write_file(path + ".varve-layout", R"({ "variables": [)" + variables + "] }");
}

TEST_F(Inspect, CountsSmallVariablesThatItHasNoRoomToName) {
  write_small_variables(folder / "rank0.bin", 300, 60'000);
  ASSERT_TRUE(test::save(*store, folder.path(), "run", 1).ok());
  const SetDetails details = inspect_set(*store, {"run", 1}).value();
  const FileDetails& file = details.files[0];
  EXPECT_GT(file.variables.size(), 100u);
  EXPECT_GT(file.unnamed_variable_count, 100u);
  EXPECT_EQ(file.variables.size() + file.unnamed_variable_count, 300u);
  EXPECT_EQ(read("rank0.bin", "").value(), ByteVector(2400));
}

TEST_F(Inspect, KnowsLeavesOfManySmallVariables) {
  for (int rank = 0; rank < 8; ++rank)
    write_small_variables(folder / ("rank" + std::to_string(rank) + ".bin"), 3000, 100);
  const Result<SaveReport> saved = test::save(*store, folder.path(), "run", 1);
  ASSERT_TRUE(saved.ok());
  const GroupRecord& group = saved->record.groups.at(0);
  EXPECT_GT(read_root(*store, group.root, group.hint).value().leaves.size(), 2u) << "3 MB of descriptions";
  EXPECT_EQ(read("rank7.bin", "").value(), ByteVector(24'000));
}

TEST_F(Inspect, GivesAVariableWhileAnotherIsDamaged) {
  save(1, contents(1));
  const ArenaId id = store->list_arenas().value().at(0);
  {
    const auto arena = store->arena(id).value();
    for (size_t i = 0; i < arena->index().packs.size(); ++i) {
      if (arena->read_pack_meta(i).value().class_key != "/Density_F64LE_Array1D") continue;
      ByteVector raw = read_file(fs, arena->path(), 1_MiB).value();
      raw[arena->index().packs[i].offset + kFrameHeaderBytes + arena->index().packs[i].meta_bytes + 5] ^= std::byte{1};
      ASSERT_TRUE(fs.remove(arena->path()).ok());
      ASSERT_TRUE(fs.create(arena->path()).value()->write_at(0, raw).ok());
    }
  }
  store->drop_arena_cache();
  EXPECT_EQ(read("rank0.bin", "/Density").status().code(), StatusCode::corrupt);
  EXPECT_EQ(read("rank0.bin", "").status().code(), StatusCode::corrupt);
  EXPECT_EQ(read("rank0.bin", "/Energy").value(), test::smooth_field(1000, 50));
  EXPECT_EQ(as_text(read("rank0.bin.varve-layout", "").value()), kSidecar);
}

TEST_F(Inspect, FindsNoDifferenceBetweenEqualSets) {
  save(1, contents(1));
  save(2, contents(1));
  const SetDifference difference = diff_sets(*store, {"run", 1}, {"run", 2}).value();
  EXPECT_TRUE(difference.changes.empty());
  EXPECT_EQ(difference.changed_bytes, 0u);
  EXPECT_GE(difference.same_count, 3u);
}

TEST_F(Inspect, MeasuresHowAVariableChanged) {
  ByteVector bytes = contents(1);
  save(1, bytes);
  const double before = load_le<double>(bytes.data() + 16 + 8 * 10);
  store_le<double>(bytes.data() + 16 + 8 * 10, before + 3.0);
  store_le<double>(bytes.data() + 16 + 8 * 500, load_le<double>(bytes.data() + 16 + 8 * 500) - 4.0);
  save(2, bytes);
  const SetDifference difference = diff_sets(*store, {"run", 1}, {"run", 2}).value();
  ASSERT_EQ(difference.changes.size(), 1u);
  const VariableChange& change = difference.changes[0];
  EXPECT_EQ(change.variable, "/Density");
  EXPECT_EQ(change.kind, ChangeKind::changed);
  EXPECT_EQ(change.changed_bytes, 16u);
  EXPECT_NEAR(change.difference_max.value(), 4.0, 1e-9);
  EXPECT_NEAR(change.difference_rms.value(), std::sqrt(25.0 / 1000), 1e-9);
}

TEST_F(Inspect, NamesFilesThatCameAndWent) {
  save(1, contents(1));
  std::filesystem::rename(folder / "rank0.bin.varve-layout", folder / "elsewhere.txt");
  std::filesystem::remove(folder / "rank0.bin");
  test::write_file(folder / "fresh", test::random_bytes(500, 7));
  ASSERT_TRUE(test::save(*store, folder.path(), "run", 2).ok());
  std::map<std::string, ChangeKind> kinds;
  for (const VariableChange& change : diff_sets(*store, {"run", 1}, {"run", 2}).value().changes)
    kinds[change.file] = change.kind;
  EXPECT_EQ(kinds.at("fresh"), ChangeKind::added);
  EXPECT_EQ(kinds.at("rank0.bin"), ChangeKind::removed);
}

TEST_F(Inspect, MatchesFilesWhoseNamesBearTheStep) {
  const ByteVector bytes = test::random_bytes(50'000, 1);
  for (uint64_t step : {1u, 2u}) {
    const std::string path = folder / ("s" + std::to_string(step));
    test::write_file(path + "/restart." + std::to_string(40 * step) + ".cpu0", bytes);
    ASSERT_TRUE(test::save(*store, path, "run", step).ok());
  }
  EXPECT_TRUE(diff_sets(*store, {"run", 1}, {"run", 2}).value().changes.empty());
}

TEST_F(Inspect, AddsUpWhatAStoreHolds) {
  EXPECT_EQ(store_statistics(*store).value().raw_bytes, 0u);
  save(1, contents(1));
  save(2, contents(1));
  const StoreStatistics statistics = store_statistics(*store).value();
  EXPECT_EQ(statistics.set_count, 2u);
  EXPECT_EQ(statistics.arena_count, 2u);
  uint64_t raw_bytes = 0, arena_bytes = 0, record_bytes = 0;
  for (uint64_t step : {1u, 2u}) {
    raw_bytes += Catalog(*store).read({"run", step}).value().raw_bytes;
    record_bytes += fs.stat(Catalog(*store).record_path({"run", step})).value().bytes;
  }
  for (const ArenaId& id : store->list_arenas().value()) arena_bytes += fs.stat(store->arena_path(id)).value().bytes;
  EXPECT_EQ(statistics.raw_bytes, raw_bytes);
  EXPECT_LE(statistics.distinct_bytes, raw_bytes / 2);
  EXPECT_EQ(statistics.stored_bytes(), arena_bytes + record_bytes);
  uint64_t packed = 0;
  for (const auto& [chain, share] : statistics.chains) packed += share.stored_bytes;
  EXPECT_EQ(packed, statistics.packed_bytes);
  EXPECT_TRUE(statistics.classes.contains("/Density_F64LE_Array1D"));
}

TEST_F(Inspect, NamesTheSetsThatNeedAnArenaWhichIsMissing) {
  save(1, contents(1));
  const ArenaId first = store->list_arenas().value().at(0);
  save(2, contents(2));
  save(3, test::random_bytes(16'116, 9));
  EXPECT_TRUE(store_statistics(*store).value().damaged_sets.empty());
  ASSERT_TRUE(fs.remove(store->arena_path(first)).ok());
  store->drop_arena_cache();
  const StoreStatistics statistics = store_statistics(*store).value();
  EXPECT_EQ(statistics.damaged_sets.at(0), (SetName{"run", 1}));
  EXPECT_EQ(statistics.damaged_sets.at(1), (SetName{"run", 2}));
  EXPECT_EQ(statistics.first_damage.code(), StatusCode::corrupt);
  EXPECT_EQ(inspect_set(*store, {"run", 1}).status().code(), StatusCode::corrupt);
  EXPECT_EQ(diff_sets(*store, {"run", 1}, {"run", 3}).status().code(), StatusCode::corrupt);
  EXPECT_EQ(read("rank0.bin", "").status().code(), StatusCode::corrupt);
  EXPECT_EQ(inspect_set(*store, {"run", 2}).value().shared_bytes, 0u);
}

}  // namespace
}  // namespace varve
