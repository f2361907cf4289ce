// Sessions that go on from files that a program has written itself, and whose formats have compressed the variables.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "codec/chunk_formats.h"
#include "codec/codec.h"
#include "codec/test_deflate.h"
#include "core/cell_box.h"
#include "core/file_system.h"
#include "engine/save.h"
#include "runtime/cluster.h"
#include "runtime/ranks.h"
#include "sets/folders.h"
#include "sets/saving.h"
#include "store/catalog.h"
#include "store/store.h"
#include "zoo/array_files.h"
#ifdef VARVE_ZOO_WITH_HDF5
#include "zoo/hdf5_writing.h"
#endif
#ifdef VARVE_ZOO_WITH_NETCDF
#include <netcdf.h>
#endif

namespace varve {
namespace {

using test::deflated;
using test::run_ranks;
using test::SessionPlace;

constexpr uint64_t kRows = 24, kColumns = 50;
const std::vector<uint64_t> kWhole = {kRows, kColumns};

/// Numbers that compress, but are no two alike.
double value_at(uint64_t row, uint64_t column) { return static_cast<double>(row * kColumns + column) + 0.125; }

std::vector<double> values_in(const CellBox& box) {
  std::vector<double> values;
  for (uint64_t row = box.offset[0]; row < box.offset[0] + box.cells[0]; ++row) {
    for (uint64_t column = box.offset[1]; column < box.offset[1] + box.cells[1]; ++column)
      values.push_back(value_at(row, column));
  }
  return values;
}

CellBox rows_of(uint32_t rank, uint32_t rank_count) {
  const uint64_t first = kRows * rank / rank_count;
  return {{first, 0}, {kRows * (rank + 1) / rank_count - first, kColumns}};
}
CellBox columns_of(uint32_t rank, uint32_t rank_count) {
  const uint64_t first = kColumns * rank / rank_count;
  return {{0, first}, {kRows, kColumns * (rank + 1) / rank_count - first}};
}
const CellBox kAll = rows_of(0, 1);

std::string bytes_of(const std::vector<double>& values, bool turned = false) {
  std::string bytes{reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)};
  for (auto at = bytes.begin(); turned && at != bytes.end(); at += sizeof(double))
    std::reverse(at, at + sizeof(double));
  return bytes;
}

std::string gzipped(const std::string& content) {
  ByteVector params, out;
  EXPECT_TRUE(find_codec("gzip").value()->encode(as_bytes(content), PackShape{}, 0, params, out).ok());
  return std::string(as_text(out));
}

/// The processes that come from this one.
std::set<pid_t> descendants() {
  std::map<pid_t, pid_t> parents;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream in(entry.path() / "stat");
    std::string text;
    std::getline(in, text, '\0');  // nothing of one that has just ended: an iterator would throw
    const size_t behind_name = text.rfind(')');
    if (behind_name == std::string::npos || text[behind_name + 2] == 'Z') continue;
    parents[std::stoi(name)] = std::stoi(text.substr(behind_name + 4));
  }
  std::set<pid_t> found;
  for (const auto& [process, parent] : parents) {
    for (auto at = parents.find(process); at != parents.end(); at = parents.find(at->second)) {
      if (at->second != ::getpid()) continue;
      found.insert(process);
      break;
    }
  }
  return found;
}

class ASessionFromEncodedFiles : public testing::Test {
 protected:
  using Divide = CellBox (*)(uint32_t rank, uint32_t rank_count);

  void SetUp() override {
    std::filesystem::create_directories(files);
    ASSERT_TRUE(Store::create(posix_file_system(), place.store).ok());
  }

  void write(const std::string& name, const std::string& contents) const {
    test::write_file(files + "/" + name, as_bytes(contents));
  }
  void write_sidecar(const std::string& name, const CellBox& box, const std::string& variable = "density") const {
    write(name + ".varve-layout",
          fmt::format(R"({{"variables": [{{"name": "{}", "global_shape": [{}, {}], "global_offset": [{}, {}]}}]}})",
                      variable, kRows, kColumns, box.offset[0], box.offset[1]));
  }
  void save(uint64_t step = 7) const {
    SaveOptions options = test::save_options("job", step);
    options.codec = CodecPolicy::parse("store").value();
    const auto saved = save_folder(*test::store_at(place.store), files, options, test::layout_service());
    ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  }

  /// What ranks are told that protect a part each, of which `wanted` has the values.
  template <class T = double>
  std::vector<Status> restart(uint32_t rank_count, Divide divide, const std::string& name = "density",
                              const std::function<std::vector<T>(const CellBox&)>& wanted = values_in,
                              bool says_place = true) const {
    std::vector<Status> said(rank_count);
    test::layout_service();  // it has processes of its own
    const std::set<pid_t> before = descendants();
    run_ranks(rank_count, [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
      auto session = Session::open(std::move(ranks), place.options());
      ASSERT_TRUE(session.ok()) << session.status().to_string();
      const CellBox box = divide(rank, rank_count);
      std::vector<T> field(box.cell_count(), T(-1));
      ArrayShape shape;
      shape.cells = box.cells;
      if (says_place) {
        shape.global_cells = kWhole;
        shape.global_offset = box.offset;
      }
      ASSERT_TRUE(session->protect(name, std::span(field), shape).ok());
      const auto from = session->restart();
      said[rank] = from.status();
      if (from.ok()) {
        EXPECT_EQ(field, wanted(box)) << "of rank " << rank;
      }
    });
    for (const Status& each : said) EXPECT_EQ(each.code(), said.front().code()) << each.to_string();
    EXPECT_EQ(descendants(), before) << "who decodes goes with the restart";
    return said;
  }
  void expect(uint32_t rank_count, Divide divide, const std::string& name = "density",
              const std::function<std::vector<double>(const CellBox&)>& wanted = values_in) const {
    SCOPED_TRACE(fmt::format("{} on {} ranks", name, rank_count));
    const Status said = restart(rank_count, divide, name, wanted).front();
    EXPECT_TRUE(said.ok()) << said.to_string();
  }
  /// In rows and in boxes.
  void expect_on_any_number(const std::string& name = "density",
                            const std::function<std::vector<double>(const CellBox&)>& wanted = values_in) const {
    for (const uint32_t rank_count : {1u, 3u, 4u}) expect(rank_count, rows_of, name, wanted);
    for (const uint32_t rank_count : {2u, 5u}) expect(rank_count, columns_of, name, wanted);
  }
  void expect_failure(uint32_t rank_count, StatusCode code, const std::string& words,
                      const std::string& name = "density") const {
    for (const Status& said : restart(rank_count, rows_of, name)) {
      EXPECT_EQ(said.code(), code) << said.to_string();
      EXPECT_NE(said.to_string().find(words), std::string::npos) << said.to_string();
      EXPECT_NE(said.to_string().find(name), std::string::npos) << said.to_string();
    }
  }

  SessionPlace place;
  const std::string files = place.folder / "files";
};

std::string npz_of(const std::string& name, const CellBox& box, const std::string& type = "<f8") {
  const std::string npy = zoo::npy_file(type, fmt::format("({}, {})", box.cells[0], box.cells[1]),
                                        bytes_of(values_in(box), type.starts_with('>')));
  return zoo::zip_file({{name + ".npy", deflated(npy), 8, npy.size(), gzip_crc32(as_bytes(npy))}});
}

TEST_F(ASessionFromEncodedFiles, GoesFromAnNpzFileToAnyNumberOfRanks) {
  write("state.npz", npz_of("density", kAll));
  save();
  expect_on_any_number();
  expect_on_any_number("/density");
}

TEST_F(ASessionFromEncodedFiles, GoesFromNpzFilesOfEachRankAndTurnsTheirNumbers) {
  for (uint32_t rank = 0; rank < 4; ++rank)
    write(fmt::format("state.{}.npz", rank), npz_of("density", rows_of(rank, 4), rank % 2 == 0 ? "<f8" : ">f8"));
  save();
  expect(4, rows_of);
  EXPECT_TRUE(restart<double>(4, rows_of, "density", values_in, /*says_place=*/false).front().ok());
  expect_failure(3, StatusCode::invalid_argument, "do not say where their parts of it lie");
  for (uint32_t rank = 0; rank < 4; ++rank) write_sidecar(fmt::format("state.{}.npz", rank), rows_of(rank, 4));
  save(8);
  expect_on_any_number();
}

TEST_F(ASessionFromEncodedFiles, RefusesAnotherTypeAndShape) {
  write("state.npz", npz_of("density", {{0, 0}, {kRows, kColumns + 1}}));
  save();
  expect_failure(2, StatusCode::invalid_argument,
                 "as a whole it is 24 x 51 in the checkpoint, but protected as 24 x 50");
  const auto said = restart<float>(2, rows_of, "density", [](const CellBox&) { return std::vector<float>(); });
  for (const Status& each : said) {
    EXPECT_EQ(each.code(), StatusCode::invalid_argument);
    EXPECT_NE(each.to_string().find("it is F64LE in the files, but protected as F32LE"), std::string::npos)
        << each.to_string();
  }
  expect_failure(2, StatusCode::invalid_argument, "is not in the checkpoint", "pressure");
}

TEST_F(ASessionFromEncodedFiles, SaysWhereNobodyKnowsHowAVariableWasCompressed) {
  write("state.npz", zoo::zip_file({{"density.npy", "?????", 12, 700}}));
  save();
  expect_failure(3, StatusCode::unsupported, "in a way that is not known");
}

TEST_F(ASessionFromEncodedFiles, FailsOnAllRanksWhereAMemberIsDamagedOrTakesTheSetBefore) {
  std::string npz = npz_of("density", kAll);
  save(5);  // an empty one
  write("state.npz", npz);
  save(6);
  for (size_t i = 0; i < 40; ++i) npz[npz.size() / 2 + i] ^= 0x55;
  write("state.npz", npz);
  save(7);
  expect(3, rows_of);
  test::drop(place.store, 6);
  test::drop(place.store, 5);
  expect_failure(3, StatusCode::corrupt, "no checkpoint is whole");
}

TEST_F(ASessionFromEncodedFiles, TakesTheSetBeforeWhereTheStoreIsDamagedAndNothingNewRestsOnThat) {
  // Other bytes of the same numbers.
  write("state.npz", npz_of("density", kAll, ">f8"));
  save(6);
  const std::string npz = npz_of("density", kAll);
  write("state.npz", npz);
  save(7);
  const auto store = test::store_at(place.store);
  const std::string path = store->arena_path(Catalog(*store).read({"job", 7}).value().groups.at(0).hint);
  std::string arena(as_text(read_file(posix_file_system(), path, 1_GiB).value()));
  const size_t at = arena.find(npz.substr(npz.size() / 2, 40));
  ASSERT_NE(at, std::string::npos);
  arena[at] ^= 1;
  test::write_file(path, as_bytes(arena));
  expect(3, rows_of);
  EXPECT_EQ(list_condemned(*store).value().size(), 1u);
  test::drop(place.store, 6);
  expect_failure(3, StatusCode::corrupt, "no checkpoint is whole");
}

/// An array of Zarr, of which one chunk was never written.
class ASessionFromZarr : public ASessionFromEncodedFiles {
 protected:
  static constexpr uint64_t kChunkRows = 7, kChunkColumns = 20;

  void write_array(const std::string& folder, bool compressed) const {
    write(folder + "/.zarray",
          fmt::format(R"({{"zarr_format":2,"shape":[{},{}],"chunks":[{},{}],"dtype":"<f8","fill_value":-7.5,)"
                      R"("order":"C","compressor":{},"filters":null}})",
                      kRows, kColumns, kChunkRows, kChunkColumns, compressed ? R"({"id":"gzip"})" : "null"));
    for (uint64_t row = 0; row < 4; ++row) {
      for (uint64_t column = 0; column < 3; ++column) {
        if (row == 1 && column == 1) continue;
        const std::string cells =
            bytes_of(values_in({{row * kChunkRows, column * kChunkColumns}, {kChunkRows, kChunkColumns}}));
        write(fmt::format("{}/{}.{}", folder, row, column), compressed ? gzipped(cells) : cells);
      }
    }
  }
  static std::vector<double> wanted(const CellBox& box) {
    std::vector<double> values = values_in(box);
    for (double& value : values) {
      const auto cell = static_cast<uint64_t>(value);
      const uint64_t row = cell / kColumns, column = cell % kColumns;
      if (row / kChunkRows == 1 && column / kChunkColumns == 1) value = -7.5;
    }
    return values;
  }
};

TEST_F(ASessionFromZarr, GoesToAnyNumberOfRanksWhetherItIsCompressedOrNot) {
  write("out.zarr/.zgroup", R"({"zarr_format":2})");
  write_array("out.zarr/ocean/heat1", true);
  write_array("out.zarr/ocean/heat2", false);
  save();
  expect_on_any_number("ocean/heat1", wanted);
  expect_on_any_number("/ocean/heat2", wanted);
  auto session = Session::open(make_single_communicator(), place.options());
  ASSERT_TRUE(session.ok());
  const auto saved = session->saved_variables(7);
  ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  ASSERT_EQ(saved->size(), 2u);
  EXPECT_EQ(saved->front().name, "/ocean/heat1");
  EXPECT_EQ(saved->front().global_cells, kWhole);
}

TEST_F(ASessionFromZarr, FailsOnAllRanksWhereAChunkIsDamaged) {
  write_array("heat", true);
  std::string chunk = gzipped("not as many cells");
  write("heat/2.0", chunk);
  save();
  expect_failure(3, StatusCode::corrupt, "'heat/2.0'", "heat");
  write("heat/.zarray", R"({"zarr_format":2,"shape":[24,50],"chunks":[7,20],"dtype":"<f8","fill_value":0,"order":"C",)"
                        R"("compressor":{"id":"secret"},"filters":null})");
  save(8);
  expect_failure(3, StatusCode::unsupported, "'secret'", "heat");
}

TEST_F(ASessionFromZarr, RefusesCellsThatNoFileHas) {
  write_array("heat", true);
  write("heat/.zarray",
        R"({"zarr_format":2,"shape":[24,50],"chunks":[7,20],"dtype":"<f8","fill_value":"?","order":"C",)"
        R"("compressor":{"id":"gzip"},"filters":null})");
  save();
  expect_failure(2, StatusCode::invalid_argument, "its cells from (7, 20) on", "heat");
}

#ifdef VARVE_ZOO_WITH_HDF5
using zoo::filtering;
using zoo::Id;
using zoo::write_dataset;

void write_hdf5(const std::string& path, const CellBox& box, hid_t type, hid_t properties) {
  const Id file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose);
  write_dataset(file, "density", type, H5T_NATIVE_DOUBLE, {box.cells[0], box.cells[1]}, values_in(box), properties);
}

TEST_F(ASessionFromEncodedFiles, GoesFromAnHdf5FileToAnyNumberOfRanksHoweverItsChunksAre) {
  write_hdf5(files + "/state.h5", kAll, H5T_IEEE_F64LE, filtering({5, 16}));
  save(7);
  expect_on_any_number();
  write_hdf5(files + "/state.h5", kAll, H5T_IEEE_F64BE, filtering({24, 7}));
  save(8);
  expect_on_any_number();
  write_hdf5(files + "/state.h5", kAll, H5T_IEEE_F64LE, zoo::creation_properties({5, 16}));
  save(9);
  expect_on_any_number();
  auto session = Session::open(make_single_communicator(), place.options());
  ASSERT_TRUE(session.ok());
  const auto saved = session->saved_variables(8);
  ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  ASSERT_EQ(saved->size(), 1u);
  EXPECT_EQ(saved->front().name, "/density");
  EXPECT_EQ(saved->front().global_cells, kWhole);
}

TEST_F(ASessionFromEncodedFiles, GoesFromHdf5FilesOfEachRank) {
  for (uint32_t rank = 0; rank < 4; ++rank)
    write_hdf5(fmt::format("{}/state.{}.h5", files, rank), rows_of(rank, 4), H5T_IEEE_F64LE, filtering({2, 30}));
  save(7);
  expect(4, rows_of);
  EXPECT_TRUE(restart<double>(4, rows_of, "density", values_in, /*says_place=*/false).front().ok());
  expect_failure(2, StatusCode::invalid_argument, "do not say where their parts of it lie");
  for (uint32_t rank = 0; rank < 4; ++rank) write_sidecar(fmt::format("state.{}.h5", rank), rows_of(rank, 4));
  save(8);
  expect_on_any_number();
}

TEST_F(ASessionFromEncodedFiles, DamagedInOneFileFailsOnAllRanksOrTakesTheSetBefore) {
  for (uint32_t rank = 0; rank < 4; ++rank) {
    write_hdf5(fmt::format("{}/state.{}.h5", files, rank), rows_of(rank, 4), H5T_IEEE_F64LE, filtering({6, 50}));
    write_sidecar(fmt::format("state.{}.h5", rank), rows_of(rank, 4));
  }
  save(6);
  std::string contents(as_text(read_file(posix_file_system(), files + "/state.2.h5", 1_GiB).value()));
  const size_t chunk = contents.rfind("\x78\x9c");
  ASSERT_NE(chunk, std::string::npos);
  ASSERT_LT(chunk + 40, contents.size());
  contents[chunk + 40] ^= 1;
  write("state.2.h5", contents);
  save(7);
  expect_on_any_number();  // of the set before
  test::drop(place.store, 6);
  for (const uint32_t rank_count : {1u, 3u, 4u}) {
    expect_failure(rank_count, StatusCode::corrupt, "HDF5 library cannot read");
    expect_failure(rank_count, StatusCode::corrupt, "state.2.h5:/density");
  }
}

/// Whoever started the ranks says how vectors are divided; the rest is the same on all ranks.
TEST_F(ASessionFromEncodedFiles, DividesVectorsAndTakesWhatAllRanksHaveAlike) {
  const auto count_of = [](uint32_t rank) { return 1000 + 300 * rank; };
  std::vector<int32_t> all;
  std::vector<double> table(700);
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<double>(i) / 3;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    std::vector<int32_t> ids(count_of(rank));
    for (int32_t& id : ids) {
      id = static_cast<int32_t>(all.size());
      all.push_back(id);
    }
    const Id file(
        H5Fcreate(fmt::format("{}/state.{}.h5", files, rank).c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT),
        H5Fclose);
    const hid_t type = rank == 1 ? H5T_STD_I32BE : H5T_STD_I32LE;
    write_dataset(file, "ids", type, H5T_NATIVE_INT32, {ids.size()}, ids, filtering({64}));
    write_dataset(file, "table", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, {table.size()}, table, filtering({90}));
  }
  save();
  for (const uint32_t rank_count : {1u, 2u, 3u, 5u}) {
    std::vector<std::vector<int32_t>> got(rank_count);
    run_ranks(rank_count, [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
      auto session = Session::open(std::move(ranks), place.options());
      ASSERT_TRUE(session.ok()) << session.status().to_string();
      std::vector<double> table_here(table.size());
      ASSERT_TRUE(session->protect("ids", got[rank]).ok());
      ASSERT_TRUE(session->protect("table", std::span(table_here)).ok());
      ASSERT_TRUE(session->redistribute("ids", Redistribution::evenly).ok());
      ASSERT_TRUE(session->redistribute("table", Redistribution::same).ok());
      const auto from = session->restart();
      ASSERT_TRUE(from.ok()) << from.status().to_string();
      EXPECT_EQ(table_here, table);
    });
    std::vector<int32_t> together;
    for (const std::vector<int32_t>& of_rank : got) together.insert(together.end(), of_rank.begin(), of_rank.end());
    EXPECT_EQ(together, all);
    if (rank_count == 3) {
      EXPECT_EQ(got[2].size(), count_of(2));
    }
  }
}
#endif

#if defined VARVE_ZOO_WITH_NETCDF && defined VARVE_ZOO_WITH_HDF5
TEST_F(ASessionFromEncodedFiles, GoesFromANetcdf4FileToAnyNumberOfRanks) {
  int file = -1, dimensions[2] = {}, density = -1;
  ASSERT_EQ(nc_create((files + "/state.nc").c_str(), NC_CLOBBER | NC_NETCDF4, &file), NC_NOERR);
  ASSERT_EQ(nc_def_dim(file, "row", kRows, &dimensions[0]), NC_NOERR);
  ASSERT_EQ(nc_def_dim(file, "column", kColumns, &dimensions[1]), NC_NOERR);
  ASSERT_EQ(nc_def_var(file, "density", NC_DOUBLE, 2, dimensions, &density), NC_NOERR);
  ASSERT_EQ(nc_def_var_deflate(file, density, /*shuffle=*/1, /*deflate=*/1, 4), NC_NOERR);
  ASSERT_EQ(nc_enddef(file), NC_NOERR);
  ASSERT_EQ(nc_put_var_double(file, density, values_in(kAll).data()), NC_NOERR);
  ASSERT_EQ(nc_close(file), NC_NOERR);
  save();
  expect_on_any_number();
}
#endif

}  // namespace
}  // namespace varve
