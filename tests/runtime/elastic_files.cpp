// Saves what elastic_program restarts from as if its ranks had written it themselves: HDF5 files, compressed.
//
//   elastic_files FOLDER RANKS STEP      the set elastic@STEP in FOLDER/store, of files in FOLDER/files
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>

#include "core/file_system.h"
#include "engine/save.h"
#include "runtime/elastic_values.h"
#include "sets/saving.h"
#include "store/store.h"
#include "varve/error.h"
#include "zoo/hdf5_writing.h"

namespace varve::test {
namespace {

using zoo::Id;

/// Of some rows.
void write_rank(const std::string& path, uint32_t rank, uint32_t rank_count, uint64_t step) {
  const uint64_t first = kElasticRows * rank / rank_count, end = kElasticRows * (rank + 1) / rank_count;
  std::vector<double> field;
  for (uint64_t cell = first * kElasticColumns; cell < end * kElasticColumns; ++cell)
    field.push_back(field_at(step, cell));
  const Id file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose);
  zoo::write_dataset(file, "field", H5T_NATIVE_DOUBLE, H5T_NATIVE_DOUBLE, {end - first, kElasticColumns}, field,
                     zoo::filtering({4, 16}));
  const auto write_numbers = [&](const char* name, const std::vector<uint64_t>& numbers, hsize_t chunk) {
    zoo::write_dataset(file, name, H5T_NATIVE_UINT64, H5T_NATIVE_UINT64, {numbers.size()}, numbers,
                       zoo::filtering({chunk}));
  };
  write_numbers("table", table_at(step), 100);
  write_numbers("particles", particles_of(step, rank), 5);
  zoo::write_dataset(file, "time", H5T_NATIVE_DOUBLE, H5T_NATIVE_DOUBLE, {}, std::vector<double>{time_at(step)});
  std::ofstream(path + ".varve-layout") << fmt::format(
      R"({{"variables": [{{"name": "field", "global_shape": [{}, {}], "global_offset": [{}, 0]}}]}})", kElasticRows,
      kElasticColumns, first);
}

void save_as_files(const std::string& folder, uint32_t rank_count, uint64_t step) {
  std::filesystem::create_directories(folder + "/files");
  for (uint32_t rank = 0; rank < rank_count; ++rank)
    write_rank(fmt::format("{}/files/state.{}.h5", folder, rank), rank, rank_count, step);
  or_throw(Store::create(posix_file_system(), folder + "/store"));
  const auto store = or_throw(Store::open(posix_file_system(), folder + "/store"));
  or_throw(save_folder(*store, folder + "/files", save_options("elastic", step), layout_service()));
}

}  // namespace
}  // namespace varve::test

int main(int argument_count, char** words) {
  if (argument_count != 4) return 2;
  try {
    varve::test::save_as_files(words[1], static_cast<uint32_t>(std::atoi(words[2])),
                               static_cast<uint64_t>(std::atoi(words[3])));
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return 1;
  }
  return 0;
}
