#include "engine/wide_packs.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "codec/deflater.h"
#include "core/memory_file_system.h"
#include "engine/effort_pace.h"
#include "engine/inspect.h"
#include "sets/saving.h"
#include "store/arena_reader.h"
#include "store/learned.h"

namespace varve {
namespace {

using test::TempFolder;

/// Files of one class: noise of 3 MiB, something else, and the same noise again where chunks are cut elsewhere.
struct WidePacks : testing::Test {
  TempFolder folder;
  MemoryFileSystem fs;
  std::unique_ptr<Store> store = test::make_store(fs);

  WidePacks() {
    const ByteVector noise = test::random_bytes(3_MiB, 1);
    for (uint64_t file = 0; file < 2; ++file) {
      ByteVector bytes;
      for (const ByteVector& part :
           {noise, test::random_bytes(1000, 10 + file), noise, test::random_bytes(100'000, 20 + file)})
        bytes.insert(bytes.end(), part.begin(), part.end());
      test::write_file(folder / ("field" + std::to_string(file)), bytes);
    }
  }
  SaveOptions options(const std::string& codec, uint64_t step) {
    SaveOptions options = test::save_options("run", step);
    options.codec = CodecPolicy::parse(codec).value();
    options.memory_bytes = SaveOptions().memory_bytes;
    return options;
  }
  Status save(const SaveOptions& options) {
    return save_folder(*store, folder.path(), options, test::layout_service()).status();
  }
};

TEST_F(WidePacks, HoldWhatComesAgainFromFarAway) {
  for (const std::string codec : {"balanced", "best"}) {
    SCOPED_TRACE(codec);
    store = test::make_store(fs, "/" + codec);
    ASSERT_TRUE(save(options(codec, 1)).ok());
    EXPECT_LT(store_statistics(*store).value().packed_bytes, 3_MiB + 512_KiB);
    EXPECT_TRUE(test::restores_as(*store, {"run", 1}, test::snapshot_of(folder.path())));
    EXPECT_TRUE(test::is_whole(*store));
  }
}

TEST_F(WidePacks, HoldFilesThatHaveTheSameRecordsInAnotherOrder) {
  // Sixteen bytes each, as complex numbers have.
  constexpr size_t record_bytes = 16, records = 100'000;
  const ByteVector some = test::random_bytes(record_bytes * records, 7);
  ByteVector others;
  for (size_t i = 0; i < records; ++i) {
    const auto begin = some.begin() + static_cast<ptrdiff_t>(i * 7919 % records * record_bytes);
    others.insert(others.end(), begin, begin + record_bytes);
  }
  const TempFolder two_files;
  test::write_file(two_files / "waves.dat", some);
  test::write_file(two_files / "sorted.bin", others);
  ASSERT_TRUE(save_folder(*store, two_files.path(), options("best", 1), test::layout_service()).ok());
  EXPECT_LT(store_statistics(*store).value().packed_bytes, some.size() + some.size() / 2);
  EXPECT_TRUE(test::restores_as(*store, {"run", 1}, test::snapshot_of(two_files.path())));
  EXPECT_TRUE(test::is_whole(*store));
}

TEST_F(WidePacks, HoldVariablesOfWhichOneHasTheOthersNumbers) {
  // Three numbers each, too few for a chunk to be found again.
  constexpr size_t record_bytes = 24, records = 40'000;
  const ByteVector all = test::random_bytes(2 * record_bytes * records, 8);
  ByteVector some;
  for (size_t i = 0; i < records; ++i) {
    const auto begin = all.begin() + static_cast<ptrdiff_t>(i * 7919 % records * 2 * record_bytes);
    some.insert(some.end(), begin, begin + record_bytes);
  }
  const ByteVector alone = test::random_bytes(some.size(), 9);
  std::string head = "{";
  ByteVector data;
  for (const auto& [name, bytes] : {std::pair("alone", alone), {"field", all}, {"some", some}}) {
    head += fmt::format(R"({}"{}":{{"dtype":"F64","shape":[{}],"data_offsets":[{},{}]}})", data.empty() ? "" : ",",
                        name, bytes.size() / 8, data.size(), data.size() + bytes.size());
    data.insert(data.end(), bytes.begin(), bytes.end());
  }
  head += '}';
  ByteVector file(8);
  store_le<uint64_t>(file.data(), head.size());
  file.insert(file.end(), as_bytes(head).begin(), as_bytes(head).end());
  file.insert(file.end(), data.begin(), data.end());
  const TempFolder one_file;
  test::write_file(one_file / "state.safetensors", file);
  ASSERT_TRUE(save_folder(*store, one_file.path(), options("best", 1), test::layout_service()).ok());
  EXPECT_LT(store_statistics(*store).value().packed_bytes, all.size() + alone.size() + some.size() / 2);
  EXPECT_TRUE(test::restores_as(*store, {"run", 1}, test::snapshot_of(one_file.path())));
  EXPECT_TRUE(test::is_whole(*store));
}

TEST_F(WidePacks, HoldDeflatedStreamsThatUsualPacksWouldCut) {
  ByteVector field(3_MiB);
  const ByteVector noise = test::random_bytes(field.size() / 8, 3);
  for (size_t i = 0; i < noise.size(); ++i)
    store_le(field.data() + 8 * i, uint64_t{0x3ff0000000000000} + 1'000'000 * i + static_cast<uint64_t>(noise[i]));
  // As `gzip` writes it: nothing in front, nothing behind that matters.
  ByteVector file(field.size());
  const std::string_view header("\x1f\x8b\x08\0\0\0\0\0\0\x03", 10);
  std::copy_n(as_bytes(header).begin(), header.size(), file.begin());
  file.resize(header.size() + Deflater().make(field, {.level = 1}, MutableByteSpan(file).subspan(header.size())));
  ASSERT_GT(file.size(), 1_MiB);
  const TempFolder deflated;
  test::write_file(deflated / "field.gz", file);
  for (const std::string codec : {"balanced", "best"}) {
    store = test::make_store(fs, "/" + codec);
    ASSERT_TRUE(save_folder(*store, deflated.path(), options(codec, 1), test::layout_service()).ok());
    EXPECT_LT(store_statistics(*store).value().packed_bytes, file.size() * 3 / 5) << codec;
    EXPECT_TRUE(test::restores_as(*store, {"run", 1}, test::snapshot_of(deflated.path())));
    EXPECT_TRUE(test::is_whole(*store));
  }
}

// With them, what trials have chosen: all is in one file.
TEST_F(WidePacks, AreLookedForOnceInFourSavesOfAJob) {
  ASSERT_TRUE(save(options("balanced", 1)).ok());
  const std::string path = join_path(store->path(), "runs/run.learned");
  const ByteVector first = read_file(fs, path, 1_MiB).value();
  EXPECT_FALSE(read_learned(*store, "run").empty());
  EXPECT_TRUE(read_learned(*store, "other").empty());

  // What follows nothing is like what comes again, and chunks are not found.
  const auto save_anew = [&](uint64_t step, uint64_t seed) {
    for (uint64_t file = 0; file < 2; ++file)
      test::write_file(folder / ("field" + std::to_string(file)), test::random_bytes(6_MiB, seed + file));
    EXPECT_TRUE(save(options("balanced", step)).ok());
    EXPECT_TRUE(test::restores_as(*store, {"run", step}, test::snapshot_of(folder.path())));
    uint64_t largest = 0;
    for (const ArenaId& arena : store->list_arenas().value()) {
      for (const FrameEntry& pack : store->arena(arena).value()->index().packs)
        largest = std::max(largest, pack.raw_bytes);
    }
    return largest;
  };
  EXPECT_GT(save_anew(2, 100), 4_MiB);
  EXPECT_NE(read_file(fs, path, 1_MiB).value(), first);

  // Without it, or with one that is damaged, it is found out anew.
  for (const bool damaged : {true, false}) {
    SCOPED_TRACE(damaged);
    store = test::make_store(fs, damaged ? "/damaged" : "/without");
    ASSERT_TRUE(save(options("balanced", 1)).ok());
    const std::string other = join_path(store->path(), "runs/run.learned");
    if (damaged) {
      test::rewrite(fs, other, [](ByteVector& bytes) { bytes[bytes.size() / 2] ^= std::byte{1}; });
    } else {
      ASSERT_TRUE(fs.remove(other).ok());
    }
    EXPECT_TRUE(read_learned(*store, "run").empty());
    EXPECT_LT(save_anew(2, damaged ? 200 : 300), 2_MiB);
    EXPECT_FALSE(read_learned(*store, "run").empty());
    EXPECT_TRUE(test::is_whole(*store));
  }
}

TEST_F(WidePacks, AreNotMadeWithLittleMemoryNorForARunningProgramNorWhereCodecsAreFast) {
  SaveOptions little = options("balanced", 1);
  little.memory_bytes = 32_MiB;
  ASSERT_TRUE(save(little).ok());
  EXPECT_GT(store_statistics(*store).value().packed_bytes, 5_MiB);
  EXPECT_TRUE(test::restores_as(*store, {"run", 1}, test::snapshot_of(folder.path())));

  store = test::make_store(fs, "/fast");
  ASSERT_TRUE(save(options("fast", 1)).ok());
  EXPECT_GT(store_statistics(*store).value().packed_bytes, 5_MiB);

  store = test::make_store(fs, "/running");
  EffortPace pace;
  SaveOptions running = options("balanced", 1);
  running.pace = &pace;
  ASSERT_TRUE(save(running).ok());
  EXPECT_GT(store_statistics(*store).value().packed_bytes, 5_MiB);
}

}  // namespace
}  // namespace varve
