// Sessions that go on from files that a program has written itself, and that were saved as a set.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>

#include "engine/save.h"
#include "engine/stored_files.h"
#include "runtime/cluster.h"
#include "runtime/ranks.h"
#include "sets/folders.h"
#include "sets/saving.h"
#include "store/catalog.h"
#include "varve/checkpoint_reader.h"
#ifdef VARVE_ZOO_WITH_HDF5
#include "zoo/hdf5_writing.h"
#endif
#ifdef VARVE_ZOO_WITH_NETCDF
#include <netcdf.h>
#endif

namespace varve {
namespace {

using test::run_ranks;
using test::SessionPlace;

constexpr uint64_t kRows = 24, kColumns = 400;

double value_of(uint64_t row, uint64_t column, uint64_t step) {
  return static_cast<double>((row * kColumns + column) * 0x9E3779B97F4A7C15 >> 20) + static_cast<double>(step);
}

/// The rows of one rank.
struct Rows {
  uint64_t first, count;
  Rows(uint32_t rank, uint32_t rank_count)
      : first(kRows * rank / rank_count), count(kRows * (rank + 1) / rank_count - first) {}
  std::vector<double> values(uint64_t step) const {
    std::vector<double> values;
    for (uint64_t row = first; row < first + count; ++row) {
      for (uint64_t column = 0; column < kColumns; ++column) values.push_back(value_of(row, column, step));
    }
    return values;
  }
  /// For a sidecar: what a raw file needs, and where the rows lie.
  std::string layout(const std::string& type = "f64") const {
    return R"("type": ")" + type + R"(", "shape": [)" + std::to_string(count) + ", " + std::to_string(kColumns) + "]";
  }
  std::string place() const { return place_from(first); }
  static std::string place_from(uint64_t row) {
    return R"("global_shape": [)" + std::to_string(kRows) + ", " + std::to_string(kColumns) +
           R"(], "global_offset": [)" + std::to_string(row) + ", 0]";
  }
};

std::string sidecar(const std::string& members, const std::string& name = "/density") {
  return R"({"variables": [{"name": ")" + name + R"(", )" + members + "}]}";
}

void write_text(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

std::string bytes_of(const std::vector<double>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)};
}

std::string turned_bytes_of(const std::vector<double>& values) {
  std::string bytes = bytes_of(values);
  for (auto at = bytes.begin(); at != bytes.end(); at += sizeof(double)) std::reverse(at, at + sizeof(double));
  return bytes;
}

class ASessionFromSavedFiles : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(files); }

  void save(uint64_t step) const {
    if (!std::filesystem::exists(place.store)) {
      ASSERT_TRUE(Store::create(posix_file_system(), place.store).ok());
    }
    const std::unique_ptr<Store> store = test::store_at(place.store);
    SaveOptions options = test::save_options("job", step);
    const Result<SaveReport> saved = save_folder(*store, files, options, test::layout_service());
    ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  }
  /// A raw file and a sidecar for each rank.
  void write_raw(uint32_t rank_count, uint64_t step, bool with_place) const {
    for (uint32_t rank = 0; rank < rank_count; ++rank) {
      const Rows rows(rank, rank_count);
      write_raw_file("state." + std::to_string(rank), rows, step, with_place ? ", " + rows.place() : "");
    }
  }
  void write_raw_file(const std::string& file, const Rows& rows, uint64_t step, const std::string& more,
                      const std::string& name = "/density") const {
    const std::string path = files + "/" + file + ".bin";
    write_text(path, bytes_of(rows.values(step)));
    write_text(path + ".varve-layout", sidecar(rows.layout() + more, name));
  }
  void expect_refusal(uint32_t rank_count, const std::string& words, const char* name = "/density") const {
    std::string all;
    for (const Status& said : restart(rank_count, 7, {}, name)) {
      EXPECT_EQ(said.code(), StatusCode::invalid_argument) << said.to_string();
      all += said.to_string() + "\n";
    }
    EXPECT_NE(all.find(words), std::string::npos) << all;
  }

  /// What is taken, or not: on `rank_count` ranks, all of the whole.
  std::vector<Status> restart(uint32_t rank_count, uint64_t step, const RestartChoice& choice = {},
                              const char* name = "/density", const double* time = nullptr) const {
    std::vector<Status> said(rank_count);
    run_ranks(rank_count, [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
      auto session = Session::open(std::move(ranks), place.options());
      ASSERT_TRUE(session.ok()) << session.status().to_string();
      const Rows rows(rank, rank_count);
      std::vector<double> field(rows.count * kColumns, -1);
      double now = -1;
      ArrayShape shape;
      shape.cells = {rows.count, kColumns};
      shape.global_cells = {kRows, kColumns};
      shape.global_offset = {rows.first, 0};
      ASSERT_TRUE(session->protect(name, std::span(field), shape).ok());
      if (time != nullptr) {
        ASSERT_TRUE(session->protect("time", now).ok());
      }
      const auto from = session->restart(choice);
      said[rank] = from.status();
      if (!from.ok()) return;
      EXPECT_EQ(*from, step);
      EXPECT_EQ(field, rows.values(step)) << "of rank " << rank;
      if (time != nullptr) {
        EXPECT_EQ(now, *time);
      }
      // The run goes on, and what it saves is its own.
      field = rows.values(step + 100);
      EXPECT_TRUE(session->checkpoint(step + 100, Persistence::now).ok());
      EXPECT_TRUE(session->finish().ok());
    });
    for (const Status& each : said) EXPECT_EQ(each.code(), said.front().code()) << each.to_string();
    return said;
  }
  void expect(uint32_t rank_count, uint64_t step, const RestartChoice& choice = {}, const char* name = "/density",
              const double* time = nullptr) const {
    SCOPED_TRACE(rank_count);
    const std::vector<Status> said = restart(rank_count, step, choice, name, time);
    EXPECT_TRUE(said.front().ok()) << said.front().to_string();
    if (said.front().ok()) test::drop(place.store, step + 100);
  }

  SessionPlace place;
  std::string files = place.folder / "files";
};

TEST_F(ASessionFromSavedFiles, GoesFromRawFilesToAnyNumberOfRanksWhereSidecarsSayThePlaces) {
  write_raw(4, 7, true);
  save(7);
  for (const uint32_t rank_count : {1u, 3u, 4u, 5u}) expect(rank_count, 7);
  expect(3, 7, {}, "density");
}

TEST_F(ASessionFromSavedFiles, GoesOnByRankWhereNothingSaysThePlacesAndRefusesAnotherNumber) {
  write_raw(4, 7, false);
  save(7);
  expect(4, 7);
  const Status said = restart(3, 7).front();
  EXPECT_EQ(said.code(), StatusCode::invalid_argument) << said.to_string();
  EXPECT_NE(said.to_string().find("variable '/density'"), std::string::npos) << said.to_string();
  EXPECT_NE(said.to_string().find("global_offset"), std::string::npos) << said.to_string();
}

TEST_F(ASessionFromSavedFiles, TakesTheStepThatIsNamed) {
  for (const uint64_t step : {7, 8}) {
    write_raw(4, step, true);
    save(step);
  }
  expect(3, 8);
  expect(3, 7, {.exactly = 7});
  expect(4, 7, {.at_most = 7});
}

TEST_F(ASessionFromSavedFiles, RefusesAnotherTypeAndWhatTheFilesDoNotHave) {
  write_raw(2, 7, true);
  save(7);
  EXPECT_NE(restart(2, 7, {}, "pressure").front().to_string().find("is not in the checkpoint"), std::string::npos);
  auto session = Session::open(make_single_communicator(), place.options());
  ASSERT_TRUE(session.ok());
  std::vector<float> field(kRows * kColumns);
  ArrayShape shape{.cells = {kRows, kColumns}, .global_cells = {kRows, kColumns}, .global_offset = {0, 0}};
  ASSERT_TRUE(session->protect("/density", std::span(field), shape).ok());
  const Status said = session->restart().status();
  EXPECT_EQ(said.code(), StatusCode::invalid_argument);
  EXPECT_NE(said.to_string().find("F64"), std::string::npos) << said.to_string();
}

TEST_F(ASessionFromSavedFiles, RefusesASidecarThatMakesNoSense) {
  write_raw(2, 7, true);
  write_text(files + "/state.1.bin.varve-layout", "{");
  save(7);
  expect_refusal(3, "state.1.bin.varve-layout");
  expect_refusal(2, "state.1.bin.varve-layout");
}

TEST_F(ASessionFromSavedFiles, RefusesAPlaceThatIsNotInTheWholeOrOfOtherDimensions) {
  write_raw(4, 7, true);
  const Rows rows(3, 4);
  const std::string path = files + "/state.3.bin.varve-layout";
  write_text(path, sidecar(rows.layout() + ", " + Rows::place_from(19)));
  save(7);
  expect_refusal(3, "state.3.bin");
  test::drop(place.store, 7);
  write_text(path, sidecar(rows.layout() + R"(, "global_shape": [9600], "global_offset": [7200])"));
  save(7);
  expect_refusal(3, "state.3.bin");
  expect_refusal(4, "state.3.bin");
  test::drop(place.store, 7);
  // Cells that no file has.
  write_text(path, sidecar(rows.layout() + ", " + Rows::place_from(17)));
  save(7);
  expect_refusal(3, "no rank has saved its cells from (23, 0) on");
}

TEST_F(ASessionFromSavedFiles, DoesNotTakeAPartForTheRanksOwnOfWhichItIsSaidThatItLiesElsewhere) {
  write_raw(4, 7, false);
  write_text(files + "/state.0.bin.varve-layout", sidecar(Rows(0, 4).layout() + ", " + Rows::place_from(6)));
  save(7);
  expect_refusal(4, "no rank has saved its cells from (0, 0) on");
  test::drop(place.store, 7);
  write_text(files + "/state.0.bin.varve-layout", sidecar(Rows(0, 4).layout() + ", " + Rows(0, 4).place()));
  save(7);
  expect(4, 7);
}

TEST_F(ASessionFromSavedFiles, TakesRanksThatCountFromOneButNoneWhereNumbersAreMissing) {
  for (const uint32_t rank : {0u, 1u, 2u, 3u})
    write_raw_file("state." + std::to_string(rank + 1), Rows(rank, 4), 7, "");
  save(7);
  expect(4, 7);
  test::drop(place.store, 7);
  for (const char* const file : {"/state.2.bin", "/state.2.bin.varve-layout"}) std::filesystem::remove(files + file);
  write_raw_file("state.5", Rows(1, 4), 7, "");
  save(7);
  expect_refusal(4, "do not follow each other");
}

TEST_F(ASessionFromSavedFiles, RefusesWhatOneOfTheFilesHasOfAnotherType) {
  write_raw(4, 7, true);
  write_text(files + "/state.2.bin.varve-layout", sidecar(Rows(2, 4).layout("i64") + ", " + Rows(2, 4).place()));
  save(7);
  expect_refusal(3, "it is I64LE in the files, but protected as F64LE");
  expect_refusal(4, "it is I64LE in the files, but protected as F64LE");
}

TEST_F(ASessionFromSavedFiles, TurnsNumbersOfTheOtherByteOrder) {
  for (uint32_t rank = 0; rank < 4; ++rank) {
    const Rows rows(rank, 4);
    const std::string path = files + "/state." + std::to_string(rank) + ".bin";
    // One of them as it is, and a header of which nothing is turned.
    write_text(path, "123" + (rank == 2 ? bytes_of(rows.values(7)) : turned_bytes_of(rows.values(7))));
    write_text(path + ".varve-layout",
               sidecar(rows.layout(rank == 2 ? "f64" : "f64be") + R"(, "offset": 3, )" + rows.place()));
  }
  save(7);
  for (const uint32_t rank_count : {1u, 3u, 4u, 5u}) expect(rank_count, 7);
}

TEST_F(ASessionFromSavedFiles, TakesWhatAFileOfNoRankHasAsTheWholeUnlessRanksHaveItToo) {
  write_raw(4, 7, false);
  write_raw_file("all", Rows(0, 1), 7, "", "/pressure");
  save(7);
  for (const uint32_t rank_count : {1u, 3u, 4u}) expect(rank_count, 7, {}, "pressure");
  expect(4, 7, {}, "density");
  test::drop(place.store, 7);
  write_raw_file("all", Rows(0, 1), 7, "", "density");
  save(7);
  expect_refusal(4, "it is not clear which is meant");
  expect_refusal(3, "it is not clear which is meant");
}

TEST_F(ASessionFromSavedFiles, RefusesWhatSeveralFilesHaveAlike) {
  write_raw_file("first", Rows(0, 1), 7, "");
  write_raw_file("second", Rows(0, 1), 8, "", "density");
  save(7);
  expect_refusal(1, "it is not clear which is meant");
  expect_refusal(2, "it is not clear which is meant");
  auto session = Session::open(make_single_communicator(), place.options());
  ASSERT_TRUE(session.ok());
  const auto saved = session->saved_variables(7);
  ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  EXPECT_EQ(saved->size(), 2u);
}

TEST_F(ASessionFromSavedFiles, ListsNothingThatTwoFilesOfARankHave) {
  write_raw_file("first", Rows(0, 1), 7, "");
  write_raw_file("second", Rows(0, 2), 8, "");
  write_raw_file("third", Rows(0, 2), 8, "", "/pressure");
  save(7);
  auto session = Session::open(make_single_communicator(), place.options());
  ASSERT_TRUE(session.ok());
  const auto saved = session->saved_variables(7);
  ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  ASSERT_EQ(saved->size(), 1u);
  EXPECT_EQ(saved->front().name, "/pressure");
}

TEST_F(ASessionFromSavedFiles, TakesAnOlderSetWhereOneIsDamaged) {
  for (const uint64_t step : {7, 8}) {
    write_raw(4, step, true);
    save(step);
  }
  const auto store = test::store_at(place.store);
  const std::string arena = store->arena_path(Catalog(*store).read({"job", 8}).value().groups.at(0).hint);
  std::fstream file(arena, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(std::filesystem::file_size(arena) / 2));
  file << "damaged!damaged!damaged!damaged!";
  file.close();
  expect(3, 7);
}

TEST_F(ASessionFromSavedFiles, SaysThatItReplacesFilesThatNoSessionHasSaved) {
  for (const uint64_t step : {7, 8, 9}) {
    write_raw(1, step, true);
    save(step);
  }
  const auto words_after = [&](uint64_t from, uint64_t step) {
    auto session = Session::open(make_single_communicator(), place.options());
    EXPECT_TRUE(session.ok());
    std::vector<double> field(kRows * kColumns);
    const ArrayShape shape{.cells = {kRows, kColumns}, .global_cells = {kRows, kColumns}, .global_offset = {0, 0}};
    EXPECT_TRUE(session->protect("/density", std::span(field), shape).ok());
    const auto restarted = session->restart({.exactly = from});
    EXPECT_TRUE(restarted.ok()) << restarted.status().to_string();
    EXPECT_TRUE(session->checkpoint(step, Persistence::now).ok());
    std::string words;
    for (const Status& warning : session->warnings()) words += warning.to_string() + "\n";
    return words;
  };
  const std::string words = words_after(7, 8);
  EXPECT_NE(words.find("takes the place of files that no session has saved: job@8"), std::string::npos) << words;
  EXPECT_EQ(words_after(7, 8), "") << "by now it is a session's own";
  EXPECT_EQ(words_after(8, 10), "");
}

TEST_F(ASessionFromSavedFiles, IsListedWithItsVariables) {
  write_raw(4, 7, true);
  save(7);
  auto session = Session::open(make_single_communicator(), place.options());
  ASSERT_TRUE(session.ok());
  const auto points = session->restart_points();
  ASSERT_TRUE(points.ok());
  ASSERT_EQ(points->size(), 1u);
  EXPECT_EQ(points->front().step, 7u);
  EXPECT_EQ(points->front().rank_count, 4u);
  const auto saved = session->saved_variables(7);
  ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  ASSERT_EQ(saved->size(), 1u);
  EXPECT_EQ(saved->front().name, "/density");
  EXPECT_EQ(saved->front().global_cells, (std::vector<uint64_t>{kRows, kColumns}));
  ASSERT_EQ(saved->front().parts.size(), 4u);
  EXPECT_EQ(saved->front().parts[1].global_offset, (std::vector<uint64_t>{6, 0}));
}

#ifdef VARVE_ZOO_WITH_HDF5
/// Rows and a time, as a program writes them; `chunk`: in pieces, compressed.
void write_hdf5(const std::string& path, const Rows& rows, uint64_t step, bool compressed = false) {
  using namespace zoo;
  const Id file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose);
  const Id properties = creation_properties(compressed ? Shape{2, kColumns} : Shape{});
  if (compressed) h5(H5Pset_deflate(properties, 6), "deflate");
  write_dataset(file, "density", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, {rows.count, kColumns}, rows.values(step),
                properties);
  write_dataset(file, "time", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, {}, std::vector{0.5 * static_cast<double>(step)});
}

TEST_F(ASessionFromSavedFiles, GoesFromHdf5FilesOfEachRank) {
  const double time = 3.5;
  for (uint32_t rank = 0; rank < 4; ++rank)
    write_hdf5(files + "/state." + std::to_string(rank) + ".h5", Rows(rank, 4), 7);
  save(7);
  expect(4, 7, {}, "density", &time);
  EXPECT_EQ(restart(3, 7, {}, "density", &time).front().code(), StatusCode::invalid_argument);
  for (uint32_t rank = 0; rank < 4; ++rank)
    write_text(files + "/state." + std::to_string(rank) + ".h5.varve-layout", sidecar(Rows(rank, 4).place()));
  save(8);
  const double again = 3.5;
  run_ranks(3, [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    auto session = Session::open(std::move(ranks), place.options());
    ASSERT_TRUE(session.ok());
    const Rows rows(rank, 3);
    std::vector<double> field(rows.count * kColumns);
    double now = -1;
    ArrayShape shape{
        .cells = {rows.count, kColumns}, .global_cells = {kRows, kColumns}, .global_offset = {rows.first, 0}};
    ASSERT_TRUE(session->protect("density", std::span(field), shape).ok());
    ASSERT_TRUE(session->protect("time", now).ok());
    const auto from = session->restart();
    ASSERT_TRUE(from.ok()) << from.status().to_string();
    EXPECT_EQ(*from, 8u);
    EXPECT_EQ(field, rows.values(7));
    EXPECT_EQ(now, again);
  });
}

TEST_F(ASessionFromSavedFiles, GoesFromOneHdf5FileOfTheWholeToAnyNumberOfRanks) {
  const double time = 3.5;
  write_hdf5(files + "/state.h5", Rows(0, 1), 7);
  save(7);
  for (const uint32_t rank_count : {1u, 2u, 5u}) expect(rank_count, 7, {}, "/density", &time);
}

std::vector<std::byte> bytes_of_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const ByteSpan bytes = as_bytes(text);
  return {bytes.begin(), bytes.end()};
}

/// Variables that are files: a whole one, one that is cut off, one of no format, and one with compressed chunks.
TEST_F(ASessionFromSavedFiles, FindsWhatIsInAVariableThatIsAFile) {
  const auto files_of = [&](uint32_t rank) {
    const std::string path = files + "/state." + std::to_string(rank) + ".h5";
    write_hdf5(path, Rows(rank, 2), 7);
    std::vector<std::vector<std::byte>> made{bytes_of_file(path), bytes_of_file(path), {}, {}};
    made[1].resize(made[1].size() / 2);
    made[2].assign(1000, std::byte{7});
    write_hdf5(path, Rows(rank, 2), 7, /*compressed=*/true);
    made[3] = bytes_of_file(path);
    return made;
  };
  const auto protect = [](Session& session, std::vector<std::vector<std::byte>>& of_rank) {
    const char* const names[] = {"file:state.h5", "file:cut.h5", "file:notes", "file:chunks.h5"};
    for (size_t i = 0; i < of_rank.size(); ++i) ASSERT_TRUE(session.protect(names[i], of_rank[i]).ok());
  };
  const std::vector<std::vector<std::vector<std::byte>>> saved{files_of(0), files_of(1)};
  run_ranks(2, [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    auto session = Session::open(std::move(ranks), place.options());
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    auto contents = saved[rank];
    protect(*session, contents);
    ASSERT_TRUE(session->checkpoint(7, Persistence::now).ok());
    EXPECT_TRUE(session->finish().ok());
  });
  const std::unique_ptr<Store> store = test::store_at(place.store);
  std::map<std::string, std::string> types;
  ASSERT_TRUE(for_each_leaf(*store, Catalog(*store).read({"job", 7}).value(), [&](const Leaf& leaf) {
                for (const TreeFile& file : leaf.files) {
                  for (const Variable& variable : file.layout.variables) types[variable.name] = variable.type.name();
                }
                return Status();
              }).ok());
  EXPECT_EQ(types["/file:state.h5/density"], "F64LE");
  EXPECT_FALSE(types.contains("/file:state.h5"));
  EXPECT_EQ(types["/file:cut.h5"], "BYTES");
  EXPECT_EQ(types["/file:notes"], "BYTES");
  EXPECT_EQ(types["/file:chunks.h5/time"], "F64LE");
  EXPECT_TRUE(types.contains("/file:chunks.h5/density"));
  test::expect_whole(place.store);
  run_ranks(2, [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    auto session = Session::open(std::move(ranks), place.options());
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    std::vector<std::vector<std::byte>> contents(4);
    protect(*session, contents);
    const auto from = session->restart();
    ASSERT_TRUE(from.ok()) << from.status().to_string();
    EXPECT_EQ(from.value(), 7u);
    EXPECT_EQ(contents, saved[rank]);
  });
  auto reader = CheckpointReader::open(place.store, "job@7");
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  std::vector<std::byte> read(saved[1][0].size());
  const Status done = reader->read_rank("file:state.h5", 1, std::span(read));
  EXPECT_TRUE(done.ok()) << done.to_string();
  EXPECT_EQ(read, saved[1][0]);
}

/// One chunk of another shape has as many bytes as the array, and most of the array is in none: it was never written.
TEST_F(ASessionFromSavedFiles, TakesAnArrayOfWhichOneChunkIsThere) {
  using namespace zoo;
  {
    const Id file(H5Fcreate((files + "/state.h5").c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose);
    const Id properties = creation_properties({2 * kRows, kColumns / 2});
    const Id space = simple_space({kRows, kColumns}, {H5S_UNLIMITED, H5S_UNLIMITED});
    const Id density(H5Dcreate2(file, "density", H5T_IEEE_F64LE, space, H5P_DEFAULT, properties, H5P_DEFAULT),
                     H5Dclose);
    const hsize_t start[] = {0, 0}, count[] = {1, 2};
    h5(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, nullptr, count, nullptr), "select");
    const Id memory = simple_space({1, 2});
    const double values[] = {1, 2};
    h5(H5Dwrite(density, H5T_NATIVE_DOUBLE, memory, space, H5P_DEFAULT, values), "write a dataset");
  }
  save(7);
  auto session = Session::open(make_single_communicator(), place.options());
  ASSERT_TRUE(session.ok());
  std::vector<double> field(kRows * kColumns, -1), wanted(kRows * kColumns, 0);
  wanted[0] = 1;
  wanted[1] = 2;
  ASSERT_TRUE(session->protect("density", std::span(field), {.cells = {kRows, kColumns}}).ok());
  const auto from = session->restart();
  ASSERT_TRUE(from.ok()) << from.status().to_string();
  EXPECT_EQ(field, wanted);
}
#endif

#ifdef VARVE_ZOO_WITH_NETCDF
/// Classic netCDF files have numbers in the other byte order.
TEST_F(ASessionFromSavedFiles, GoesFromANetcdfFileToAnyNumberOfRanks) {
  const double time = 3.5;
  int file = -1, dimensions[2] = {}, density = -1, now = -1;
  ASSERT_EQ(nc_create((files + "/state.nc").c_str(), NC_CLOBBER, &file), NC_NOERR);
  ASSERT_EQ(nc_def_dim(file, "row", kRows, &dimensions[0]), NC_NOERR);
  ASSERT_EQ(nc_def_dim(file, "column", kColumns, &dimensions[1]), NC_NOERR);
  ASSERT_EQ(nc_def_var(file, "time", NC_DOUBLE, 0, nullptr, &now), NC_NOERR);
  ASSERT_EQ(nc_def_var(file, "density", NC_DOUBLE, 2, dimensions, &density), NC_NOERR);
  ASSERT_EQ(nc_enddef(file), NC_NOERR);
  ASSERT_EQ(nc_put_var_double(file, density, Rows(0, 1).values(7).data()), NC_NOERR);
  ASSERT_EQ(nc_put_var_double(file, now, &time), NC_NOERR);
  ASSERT_EQ(nc_close(file), NC_NOERR);
  save(7);
  for (const uint32_t rank_count : {1u, 3u}) expect(rank_count, 7, {}, "density", &time);
}
#endif

}  // namespace
}  // namespace varve
