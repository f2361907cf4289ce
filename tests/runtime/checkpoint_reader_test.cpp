#include "varve/checkpoint_reader.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>

#include "core/cell_box.h"
#include "engine/save.h"
#include "runtime/cluster.h"
#include "runtime/ranks.h"
#include "sets/folders.h"
#include "sets/saving.h"
#include "store/catalog.h"

// A program that reads what a session saved, without one of its own.

namespace varve {
namespace {

using test::cut;
using test::run_ranks;
using test::SessionPlace;

/// What a cell of the whole has, by its ordinal.
double value_of(uint64_t cell) { return static_cast<double>(cell) * 1.25 + 0.5; }

std::vector<double> values_of(const CellBox& box, const std::vector<uint64_t>& whole) {
  const CellBox all{std::vector<uint64_t>(whole.size(), 0), whole};
  std::vector<double> values;
  for_each_cell_run(box, all, box, [&](const CellRun& run) {
    for (uint64_t i = 0; i < run.cells; ++i) values.push_back(value_of(run.from + i));
    return Status();
  }).ignore("it cannot fail");
  return values;
}

/// Saves one set, step 5 of the job "run": each rank has a box of "field", its rank of "rank", as many "particles" as
/// its rank, and what all have alike in "time".
void save(const SessionOptions& options, const std::vector<uint64_t>& whole, const std::vector<CellBox>& boxes) {
  run_ranks(static_cast<uint32_t>(boxes.size()), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    auto session = Session::open(std::move(ranks), options);
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    std::vector<double> field = values_of(boxes[rank], whole);
    std::vector<uint32_t> particles(rank);
    std::iota(particles.begin(), particles.end(), 100 * rank);
    double time = 0.25;
    ArrayShape shape;
    shape.cells = boxes[rank].cells;
    shape.global_cells = whole;
    shape.global_offset = boxes[rank].offset;
    ASSERT_TRUE(session->protect("field", std::span(field), shape).ok());
    ASSERT_TRUE(session->protect("rank", rank).ok());
    ASSERT_TRUE(session->protect("particles", particles).ok());
    ASSERT_TRUE(session->protect("time", time).ok());
    const Status saved = session->checkpoint(5, Persistence::now);
    ASSERT_TRUE(saved.ok()) << saved.to_string();
    EXPECT_TRUE(session->finish().ok());
  });
}

CellBox any_box(const std::vector<uint64_t>& whole, std::mt19937& random) {
  CellBox box;
  for (const uint64_t extent : whole) {
    box.offset.push_back(std::uniform_int_distribution<uint64_t>(0, extent)(random));
    box.cells.push_back(std::uniform_int_distribution<uint64_t>(0, extent - box.offset.back())(random));
  }
  return box;
}

SessionOptions options_of(const SessionPlace& place) {
  SessionOptions options = place.options();
  options.job = "run";
  return options;
}

Result<CheckpointReader> open(const SessionPlace& place, std::string_view set = "run@5") {
  return CheckpointReader::open(place.store, set, {.threads = 3});
}

TEST(CheckpointReader, BoxesAreThoseOfThePlainArrayHoweverItWasDivided) {
  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 6; ++round) {
    const size_t dimensions = 1 + static_cast<size_t>(round) % 4;
    std::vector<uint64_t> whole;
    for (size_t d = 0; d < dimensions; ++d)
      whole.push_back(std::uniform_int_distribution<uint64_t>(1, dimensions == 1 ? 100'000 : 24)(random));
    const size_t rank_count = std::uniform_int_distribution<size_t>(1, 7)(random);
    std::vector<CellBox> boxes = cut(whole, rank_count, random);
    // What ranks share is the same in both, as ghost cells that were saved are.
    if (round % 2 == 0) boxes.push_back(any_box(whole, random));
    const SessionPlace place;
    SessionOptions options = options_of(place);
    options.group = round % 3 == 0 ? "rank" : "node";
    save(options, whole, boxes);
    auto reader = open(place);
    ASSERT_TRUE(reader.ok()) << reader.status().to_string();
    EXPECT_EQ(reader->values<double>("field").value(), values_of({std::vector<uint64_t>(dimensions, 0), whole}, whole));
    for (int i = 0; i < 40; ++i) {
      const CellBox box = any_box(whole, random);
      const auto values = reader->values<double>("field", ArraySection{box.offset, box.cells});
      ASSERT_TRUE(values.ok()) << values.status().to_string();
      EXPECT_EQ(*values, values_of(box, whole));
    }
    for (uint32_t rank = 0; rank < boxes.size(); ++rank)
      EXPECT_EQ(reader->rank_values<double>("field", rank).value(), values_of(boxes[rank], whole)) << rank;
  }
}

/// A set of three ranks, each with two rows of five.
class ReaderOfASet : public testing::Test {
 protected:
  void SetUp() override {
    for (uint64_t rank = 0; rank < 3; ++rank) boxes_.push_back({{2 * rank, 0}, {2, 5}});
    save(options_of(place_), whole_, boxes_);
    auto opened = open(place_);
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    reader_.emplace(std::move(*opened));
  }
  Status read(const ArraySection& box, size_t bytes) {
    into_.assign(bytes, std::byte{7});
    return reader_->read("field", box, into_);
  }

  SessionPlace place_;
  const std::vector<uint64_t> whole_{6, 5};
  std::vector<CellBox> boxes_;
  std::optional<CheckpointReader> reader_;
  std::vector<std::byte> into_;
};

TEST_F(ReaderOfASet, SaysWhatIsInIt) {
  EXPECT_EQ(reader_->set(), "run@5");
  EXPECT_EQ(reader_->step(), 5u);
  EXPECT_EQ(reader_->rank_count(), 3u);
  EXPECT_TRUE(reader_->has_all_ranks());
  ASSERT_EQ(reader_->variables().size(), 4u);
  const CheckpointVariable* const field = reader_->variable("field").value();
  EXPECT_EQ(field->type, element_type_of<double>());
  EXPECT_TRUE(field->is_one_array);
  EXPECT_EQ(field->cells, whole_);
  ASSERT_EQ(field->parts.size(), 3u);
  EXPECT_EQ(field->parts[1].rank, 1);
  EXPECT_EQ(field->parts[1].cells, (std::vector<uint64_t>{2, 5}));
  EXPECT_EQ(field->parts[1].global_offset, (std::vector<uint64_t>{2, 0}));
  const CheckpointVariable* const particles = reader_->variable("particles").value();
  EXPECT_FALSE(particles->is_one_array);
  EXPECT_EQ(particles->parts[2].cells, std::vector<uint64_t>{2});
  EXPECT_EQ(reader_->variable("pressure").status().code(), StatusCode::not_found);
}

TEST_F(ReaderOfASet, TheNewestSetOfAJobNeedsNoStep) {
  auto newest = open(place_, "run");
  ASSERT_TRUE(newest.ok());
  EXPECT_EQ(newest->set(), "run@5");
  EXPECT_EQ(open(place_, "run@6").status().code(), StatusCode::not_found);
  EXPECT_EQ(open(place_, "walk").status().code(), StatusCode::not_found);
  EXPECT_EQ(CheckpointReader::open(place_.folder / "nothing", "run").status().code(), StatusCode::not_found);
}

TEST_F(ReaderOfASet, WhatSaysNothingOfAWholeIsReadByRank) {
  EXPECT_EQ(reader_->rank_values<uint32_t>("rank", 2).value(), std::vector<uint32_t>{2});
  EXPECT_EQ(reader_->rank_values<uint32_t>("particles", 0).value(), std::vector<uint32_t>{});
  EXPECT_EQ(reader_->rank_values<uint32_t>("particles", 2).value(), (std::vector<uint32_t>{200, 201}));
  EXPECT_EQ(reader_->rank_values<uint32_t>("particles", 2, ArraySection{{1}, {1}}).value(), std::vector<uint32_t>{201});
  const Status whole = reader_->values<uint32_t>("particles").status();
  EXPECT_EQ(whole.code(), StatusCode::invalid_argument);
  EXPECT_NE(whole.to_string().find("rank 0 has not said"), std::string::npos) << whole.to_string();
  EXPECT_NE(whole.hint().find("ArrayShape::global_cells"), std::string::npos);
  EXPECT_EQ(reader_->rank_values<uint32_t>("particles", 3).status().code(), StatusCode::not_found);
}

TEST_F(ReaderOfASet, ABoxThatDoesNotLieInTheArrayIsRefused) {
  const uint64_t huge = UINT64_MAX;
  for (const ArraySection& box : std::vector<ArraySection>{{{0, 0}, {7, 5}},
                                                           {{6, 0}, {1, 1}},
                                                           {{5, 4}, {1, 2}},
                                                           {{huge, 0}, {1, 1}},
                                                           {{1, 0}, {huge, 1}},
                                                           {{0, 0}, {huge, huge}},
                                                           {{0}, {1}},
                                                           {{0, 0, 0}, {1, 1, 1}},
                                                           {{0, 0}, {1}},
                                                           {{}, {}}}) {
    EXPECT_EQ(read(box, 8).code(), StatusCode::invalid_argument);
    EXPECT_EQ(reader_->values<double>("field", box).status().code(), StatusCode::invalid_argument);
    EXPECT_EQ(reader_->rank_values<double>("field", 0, box).status().code(), StatusCode::invalid_argument);
  }
  EXPECT_EQ(into_.front(), std::byte{7});
}

TEST_F(ReaderOfASet, MemoryOfAnotherSizeOrTypeIsRefused) {
  EXPECT_EQ(read({{0, 0}, {1, 2}}, 15).code(), StatusCode::invalid_argument);
  EXPECT_EQ(read({{0, 0}, {1, 2}}, 17).code(), StatusCode::invalid_argument);
  EXPECT_TRUE(read({{0, 0}, {1, 2}}, 16).ok());
  EXPECT_TRUE(read({{6, 5}, {0, 0}}, 0).ok());
  EXPECT_EQ(reader_->values<float>("field").status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(reader_->values<uint64_t>("field").status().code(), StatusCode::invalid_argument);
}

TEST(CheckpointReader, CellsThatNoRankSavedAreAnErrorThatNamesTheFirst) {
  const SessionPlace place;
  save(options_of(place), {4, 4}, {{{0, 0}, {2, 4}}, {{3, 0}, {1, 4}}});
  auto reader = open(place);
  ASSERT_TRUE(reader.ok());
  const Status missing = reader->values<double>("field").status();
  EXPECT_EQ(missing.code(), StatusCode::not_found);
  EXPECT_NE(missing.to_string().find("no rank has saved its cells from (2, 0) on"), std::string::npos)
      << missing.to_string();
  EXPECT_EQ(reader->values<double>("field", ArraySection{{3, 1}, {1, 2}}).value(),
            (std::vector<double>{value_of(13), value_of(14)}));
}

TEST(CheckpointReader, WhatSeveralRanksSavedIsTakenFromTheLowest) {
  const SessionPlace place;
  run_ranks(3, [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    auto session = Session::open(std::move(ranks), options_of(place));
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    std::vector<uint32_t> marks(4, rank);
    ArrayShape shape;
    shape.cells = {4};
    shape.global_cells = {8};
    shape.global_offset = {4 - 2 * rank};  // 4 to 7, 2 to 5, 0 to 3
    ASSERT_TRUE(session->protect("marks", std::span(marks), shape).ok());
    ASSERT_TRUE(session->checkpoint(5, Persistence::now).ok());
    EXPECT_TRUE(session->finish().ok());
  });
  auto reader = open(place);
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(reader->values<uint32_t>("marks").value(), (std::vector<uint32_t>{2, 2, 1, 1, 0, 0, 0, 0}));
  EXPECT_EQ(reader->values<uint32_t>("marks", ArraySection{{1}, {2}}).value(), (std::vector<uint32_t>{2, 1}));
}

TEST(CheckpointReader, AScalarOfALoneRankIsAWhole) {
  const SessionPlace place;
  save(options_of(place), {3}, {{{0}, {3}}});
  auto reader = open(place);
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(reader->values<double>("time").value(), std::vector<double>{0.25});
  EXPECT_TRUE(reader->variable("time").value()->is_one_array);
}

/// Flips a bit of the one place in the store's arenas that holds these bytes.
void damage(const std::string& store, const std::vector<double>& values) {
  const ByteSpan wanted = std::as_bytes(std::span(values));
  size_t found = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(store + "/arenas")) {
    if (!entry.is_regular_file()) continue;
    ByteVector arena = read_file(posix_file_system(), entry.path().string(), 1_GiB).value();
    const auto at = std::search(arena.begin(), arena.end(), wanted.begin(), wanted.end());
    if (at == arena.end()) continue;
    ++found;
    *at ^= std::byte{1};
    test::write_file(entry.path().string(), arena);
  }
  ASSERT_EQ(found, 1u);
}

TEST(CheckpointReader, DamageIsToldAndOnlyWherePacksAreWanted) {
  const SessionPlace place;
  SessionOptions options = options_of(place);
  options.codec = "store";
  const std::vector<uint64_t> whole{4, 1'500'000};
  std::vector<CellBox> boxes;
  for (uint64_t rank = 0; rank < 4; ++rank) boxes.push_back({{rank, 0}, {1, whole[1]}});
  save(options, whole, boxes);
  damage(place.store, values_of({{3, 1'400'000}, {1, 100}}, whole));
  auto reader = open(place);
  ASSERT_TRUE(reader.ok());
  const Status damaged = reader->values<double>("field").status();
  EXPECT_EQ(damaged.code(), StatusCode::corrupt) << damaged.to_string();
  EXPECT_NE(damaged.to_string().find("variable 'field'"), std::string::npos) << damaged.to_string();
  EXPECT_EQ(damaged.remedy(), Remedy::verify_and_replace_arena);
  EXPECT_EQ(reader->values<double>("field", ArraySection{{3, 1'399'990}, {1, 20}}).status().code(),
            StatusCode::corrupt);
  const CellBox elsewhere{{0, 10}, {3, 1'000'000}};
  EXPECT_EQ(reader->values<double>("field", ArraySection{elsewhere.offset, elsewhere.cells}).value(),
            values_of(elsewhere, whole));
  // A column, of which each pack has some cells.
  EXPECT_EQ(reader->values<double>("field", ArraySection{{0, 5}, {4, 1}}).value(), values_of({{0, 5}, {4, 1}}, whole));
}

/// A set of a folder with an array of Zarr, of 10 by 25 cells in chunks of 4 by 10, of which one is not there.
class ReaderOfZarr : public testing::Test {
 protected:
  void SetUp() override {
    write(".zgroup", R"({"zarr_format":2})");
    describe("null");
    for (uint64_t row = 0; row < 3; ++row) {
      for (uint64_t column = 0; column < 3; ++column) {
        const CellBox chunk{{4 * row, 10 * column}, {4, 10}};
        if (row != 1 || column != 2) write_cells(fmt::format("ocean/heat/{}.{}", row, column), chunk);
      }
    }
    ASSERT_TRUE(Store::create(posix_file_system(), place_.store).ok());
  }
  void describe(const std::string& compressor) {
    write("ocean/heat/.zarray", R"({"zarr_format":2,"shape":[10,25],"chunks":[4,10],"dtype":"<f8","compressor":)" +
                                    compressor + R"(,"filters":null,"order":"C","fill_value":-7.5})");
  }
  void write(const std::string& name, const std::string& contents) {
    const std::filesystem::path path = files_ + "/out.zarr/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << contents;
  }
  /// Of a larger array: what is past the end of one is anything.
  void write_cells(const std::string& name, const CellBox& chunk) {
    const std::vector<double> values = values_of(chunk, {12, 30});
    write(name, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)});
  }
  CheckpointReader saved(const std::string& folder, uint64_t step = 5) {
    const std::unique_ptr<Store> store = test::store_at(place_.store);
    const auto report = save_folder(*store, folder, test::save_options("run", step), test::layout_service());
    EXPECT_TRUE(report.ok()) << report.status().to_string();
    return CheckpointReader::open(place_.store, "run").value();
  }
  static std::vector<double> wanted(const CellBox& box) {
    std::vector<double> values = values_of(box, {12, 30});
    const CellBox missing{{4, 20}, {4, 10}};
    if (const std::optional<CellBox> none = overlap(box, missing)) {
      for_each_cell_run(*none, *none, box, [&](const CellRun& run) {
        std::fill_n(values.begin() + static_cast<std::ptrdiff_t>(run.to), run.cells, -7.5);
        return Status();
      }).ignore("it cannot fail");
    }
    return values;
  }

  SessionPlace place_;
  const std::string files_ = place_.folder / "files";
};

TEST_F(ReaderOfZarr, PutsTheChunksOfAnArrayTogether) {
  CheckpointReader reader = saved(files_);
  const CheckpointVariable* const heat = reader.variable("out.zarr:/ocean/heat").value();
  EXPECT_TRUE(heat->is_one_array);
  EXPECT_EQ(heat->cells, (std::vector<uint64_t>{10, 25}));
  EXPECT_EQ(heat->parts.size(), 8u);
  EXPECT_EQ(reader.variables().size(), 2u) << "with the description of its group";
  std::mt19937 random(1);
  for (int i = 0; i < 50; ++i) {
    const CellBox box = i == 0 ? CellBox{{0, 0}, {10, 25}} : any_box({10, 25}, random);
    const auto values = reader.values<double>("out.zarr:/ocean/heat", ArraySection{box.offset, box.cells});
    ASSERT_TRUE(values.ok()) << values.status().to_string();
    EXPECT_EQ(*values, wanted(box));
  }
}

TEST_F(ReaderOfZarr, CallsAnArrayByItsGroupsWhereTheSetIsTheOutermost) {
  EXPECT_TRUE(saved(files_ + "/out.zarr").variable("/ocean/heat").ok());
}

TEST_F(ReaderOfZarr, RefusesChunksThatWentThroughWhatIsNotKnownByItsName) {
  describe(R"({"id":"bz2","level":1})");
  CheckpointReader reader = saved(files_);
  EXPECT_EQ(reader.variable("out.zarr:/ocean/heat").value()->cells, (std::vector<uint64_t>{10, 25}));
  const Status unknown = reader.values<double>("out.zarr:/ocean/heat").status();
  EXPECT_EQ(unknown.code(), StatusCode::unsupported);
  EXPECT_NE(unknown.to_string().find("'bz2', which is not known here"), std::string::npos) << unknown.to_string();
  describe(R"({"id":"blosc","cname":"snappy"})");
  const Status inner = saved(files_, 6).values<double>("out.zarr:/ocean/heat").status();
  EXPECT_EQ(inner.code(), StatusCode::unsupported);
  EXPECT_NE(inner.to_string().find("'blosc' with 'snappy'"), std::string::npos) << inner.to_string();
}

TEST_F(ReaderOfZarr, LeavesChunksThatAreThereTwiceToThemselves) {
  write_cells("ocean/heat/0/1", {{0, 0}, {4, 10}});
  const CheckpointReader reader = saved(files_, 6);
  EXPECT_EQ(reader.variable("out.zarr:/ocean/heat").status().code(), StatusCode::not_found);
  EXPECT_TRUE(reader.variable("out.zarr/ocean/heat/0.1:/ocean/heat").ok());
}

TEST_F(ReaderOfZarr, DoesNotTakeWhatIsThereAndDoesNotFitForMissing) {
  for (const size_t bytes : {size_t{0}, size_t{100}, size_t{500}}) {
    write("ocean/heat/1.1", std::string(bytes, 'x'));
    const CheckpointReader reader = saved(files_, 5 + bytes);
    EXPECT_EQ(reader.variable("out.zarr:/ocean/heat").status().code(), StatusCode::not_found) << bytes;
    EXPECT_TRUE(reader.variable("out.zarr/ocean/heat/0.1:/ocean/heat").ok()) << bytes;
    EXPECT_EQ(reader.variable("out.zarr/ocean/heat/1.1:/ocean/heat").ok(), bytes > 0) << bytes;
  }
}

TEST(ReaderOfSavedFiles, PutsTogetherWhatSidecarsSayIsOfAWhole) {
  const SessionPlace place;
  const std::string files = place.folder / "files";
  std::filesystem::create_directories(files);
  const std::vector<uint64_t> whole{6, 5};
  for (uint64_t rank = 0; rank < 3; ++rank) {
    const std::vector<double> values = values_of({{2 * rank, 0}, {2, 5}}, whole);
    const std::string path = files + fmt::format("/state.{}.bin", rank);
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * 8));
    std::ofstream(path + ".varve-layout")
        << fmt::format(R"({{"variables": [{{"name": "/field", "type": "f64", "shape": [2, 5], "global_shape": [6, 5],)"
                       R"( "global_offset": [{}, 0]}}]}})",
                       2 * rank);
  }
  ASSERT_TRUE(Store::create(posix_file_system(), place.store).ok());
  ASSERT_TRUE(
      save_folder(*test::store_at(place.store), files, test::save_options("run", 5), test::layout_service()).ok());
  auto reader = CheckpointReader::open(place.store, "run@5");
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  EXPECT_EQ(reader->variable("field").value()->cells, whole);
  const CellBox box{{1, 1}, {4, 3}};
  EXPECT_EQ(reader->values<double>("field", ArraySection{box.offset, box.cells}).value(), values_of(box, whole));
  EXPECT_EQ(reader->values<double>("state.1.bin:/field").value(), values_of({{2, 0}, {2, 5}}, whole));
}

TEST(CheckpointReader, ANodesOwnStoreGivesWhatItHasAndSaysWhatItHasNot) {
  test::Cluster cluster;
  const std::vector<uint64_t> whole{12, 3};
  run_ranks(cluster.rank_count(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    auto session = cluster.open(rank, std::move(ranks), "local:" + cluster.local);
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    const CellBox box{{2 * rank, 0}, {2, 3}};
    std::vector<double> field = values_of(box, whole);
    VariableTable& variables = (*session)->variables();
    ASSERT_TRUE(variables
                    .protect_array("field", element_type_of<double>(), field.data(), field.size(),
                                   {box.cells, {}, {}, whole, box.offset})
                    .ok());
    ASSERT_TRUE(variables.protect_scalar("rank", element_type_of<uint32_t>(), &rank).ok());
    const Status saved = (*session)->checkpoint(5, Persistence::now);
    ASSERT_TRUE(saved.ok()) << saved.to_string();
    test::Cluster::finish(**session);
  });
  const std::string store = cluster.node_path("b");
  auto reader = CheckpointReader::open(store, Catalog(*test::store_at(store)).sets().value().front().to_string());
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  EXPECT_EQ(reader->rank_count(), 6u);
  EXPECT_FALSE(reader->has_all_ranks());
  const CellBox own{{4, 1}, {4, 2}};
  EXPECT_EQ(reader->values<double>("field", ArraySection{own.offset, own.cells}).value(), values_of(own, whole));
  for (const Status& elsewhere : {reader->values<double>("field").status(),
                                  reader->values<double>("field", ArraySection{{3, 0}, {2, 1}}).status(),
                                  reader->rank_values<uint32_t>("rank", 5).status()}) {
    EXPECT_EQ(elsewhere.code(), StatusCode::not_found);
    EXPECT_NE(elsewhere.to_string().find("made by 6 ranks, and this store has 2 of them"), std::string::npos)
        << elsewhere.to_string();
    EXPECT_FALSE(elsewhere.hint().empty());
  }
  EXPECT_EQ(reader->rank_values<uint32_t>("rank", 3).value(), std::vector<uint32_t>{3});
}

}  // namespace
}  // namespace varve
