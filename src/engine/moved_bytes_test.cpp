#include "engine/moved_bytes.h"

#include <gtest/gtest.h>

#include "core/memory_file_system.h"
#include "engine/save.h"
#include "sets/saving.h"

namespace varve {
namespace {

using test::TempFolder;

/// A file to which a program has appended its states, and the state that it goes on from.
struct MovedBytes : testing::Test {
  MemoryFileSystem fs;
  std::unique_ptr<Store> store = test::make_store(fs);
  TempFolder run;
  std::vector<ByteVector> states;

  MovedBytes() {
    ByteVector trajectory;
    for (uint64_t i = 0; i < 3; ++i) {
      states.push_back(test::random_bytes(400'000, 30 + i));
      append(trajectory, test::random_bytes(100, 40 + i));
      append(trajectory, states.back());
    }
    test::write_file(run / "trajectory", trajectory);
    write_state(2);
  }
  static void append(ByteVector& bytes, const ByteVector& more) { bytes.insert(bytes.end(), more.begin(), more.end()); }
  void write_state(uint64_t number) {
    ByteVector state = test::random_bytes(1234, 50 + number);
    append(state, states[number]);
    test::write_file(run / "state", state);
  }
  static SaveOptions options(const std::string& effort, uint64_t step) {
    SaveOptions options = test::save_options("run", step);
    options.codec = CodecPolicy::parse(effort).value();
    options.memory_bytes = SaveOptions().memory_bytes;
    return options;
  }
  uint64_t new_bytes_of(const SaveOptions& options) {
    const Result<SaveReport> report = save_folder(*store, run.path(), options, test::layout_service());
    EXPECT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_TRUE(test::restores_as(*store, {"run", *options.step}, test::snapshot_of(run.path())));
    return report.ok() ? report->record.new_bytes : 0;
  }
};

TEST_F(MovedBytes, AreFoundAgainInTheSetAndInLaterOnes) {
  constexpr uint64_t all_states = 1'200'000, at_the_ends = 100'000;
  EXPECT_LT(new_bytes_of(options("best", 1)), all_states + at_the_ends);
  write_state(0);
  EXPECT_LT(new_bytes_of(options("best", 2)), at_the_ends);
  EXPECT_TRUE(test::is_whole(*store));

  store = test::make_store(fs, "/little");
  SaveOptions little = options("best", 1);
  little.memory_bytes = 32_MiB;
  EXPECT_LT(new_bytes_of(little), all_states + at_the_ends) << "cuts do not depend on memory";
  store = test::make_store(fs, "/balanced");
  EXPECT_GT(new_bytes_of(options("balanced", 1)), all_states + states[0].size()) << "effort balanced looks for none";
}

TEST_F(MovedBytes, AreCutAsTheUserSays) {
  SaveOptions large = options("best", 1);
  large.chunker.bytes_average = 64_KiB;
  EXPECT_GT(new_bytes_of(large), 1'200'000 + states[0].size());
  store = test::make_store(fs, "/chain");
  EXPECT_GT(new_bytes_of(options("zstd", 1)), 1'200'000 + states[0].size());
}

TEST_F(MovedBytes, AreNotSeenInWhatChangesInPlace) {
  ByteVector field = test::random_bytes(400'000, 60);
  for (std::byte& byte : field) byte &= std::byte{0x7f};  // noise would be cut into fewer chunks
  const TempFolder in_place;
  test::write_file(in_place / "a", field);
  test::write_file(in_place / "b", field);
  ASSERT_TRUE(save_folder(*store, in_place.path(), options("best", 1), test::layout_service()).ok());
  field[200'000] ^= std::byte{1};
  test::write_file(in_place / "b", field);
  const Result<SaveReport> report = save_folder(*store, in_place.path(), options("best", 2), test::layout_service());
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->record.new_bytes, 8192U);
}

TEST_F(MovedBytes, AreNotSeenInWhatIsFoundAgainInFixedChunks) {
  // A table of rows whose lengths divide a chunk's: content says nothing about where to cut it.
  ByteVector table;
  const ByteVector rows = test::random_bytes(64_KiB, 61);
  for (int i = 0; i < 30; ++i) append(table, rows);
  const TempFolder periodic;
  test::write_file(periodic / "table", table);
  const Result<SaveReport> report = save_folder(*store, periodic.path(), options("best", 1), test::layout_service());
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->record.new_bytes, rows.size());
}

}  // namespace
}  // namespace varve
