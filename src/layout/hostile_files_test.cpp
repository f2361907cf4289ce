// Damaged files of every format: whatever a reader makes of them, the caller gets a valid layout, or an opaque one and
// a warning.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "layout/layout_service.h"
#include "layout/test_files.h"
#include "zoo/zoo.h"

namespace varve {
namespace {

struct HostileFiles : testing::Test {
  HostileFiles() {
    LayoutServiceOptions options{.worker_count = 2, .limits = {}, .readers = built_in_readers()};
    options.limits.timeout = std::chrono::milliseconds(2000);
    auto started = LayoutService::start(std::move(options));
    if (started.ok()) service = std::move(*started);
  }

  /// Returns how many of the variants (all of them files of the same path) were understood all the same.
  size_t try_all(const std::vector<std::string>& variants) {
    std::vector<LayoutRequest> requests;
    for (size_t i = 0; i < variants.size(); ++i) {
      std::string path = (directory.path() / ("variant" + std::to_string(i))).string();
      write_text(path, variants[i]);
      requests.push_back({path, variants[i].size()});
    }
    std::vector<LayoutOutcome> outcomes = service->read_many(requests);
    size_t understood = 0;
    for (size_t i = 0; i < outcomes.size(); ++i) {
      EXPECT_TRUE(validate_layout(outcomes[i].layout, requests[i].file_bytes).ok());
      if (outcomes[i].warning) {
        EXPECT_EQ(outcomes[i].layout, opaque_layout(requests[i].file_bytes, "/variant" + std::to_string(i)));
        expect_no_exit(*outcomes[i].warning);
      }
      understood += outcomes[i].warning ? 0 : 1;
    }
    return understood;
  }

  /// A library may crash on a signal. But no reader calls exit(): that is how a sanitizer ends a process, and what it
  /// found would be lost with the process's stderr.
  static void expect_no_exit(const std::string& warning) {
    EXPECT_EQ(warning.find("crashed (exit code"), std::string::npos) << warning;
  }

  static std::vector<std::string> truncations(const std::string& whole, size_t count) {
    std::vector<std::string> variants;
    for (size_t i = 0; i < count; ++i) variants.push_back(whole.substr(0, whole.size() * i / count));
    return variants;
  }

  /// `flips` bits each, in the first `region` bytes.
  static std::vector<std::string> bit_flips(const std::string& whole, size_t count, size_t region, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<std::string> variants(count, whole);
    for (std::string& variant : variants) {
      for (size_t flips = 1 + random() % 4; flips > 0; --flips) {
        variant[random() % std::min(region, whole.size())] ^= static_cast<char>(1 << (random() % 8));
      }
    }
    return variants;
  }

  void try_damages(const std::filesystem::path& path, size_t count) {
    SCOPED_TRACE(path.string());
    std::string whole = read_text(path);
    try_all(truncations(whole, count));
    try_all(bit_flips(whole, count, 4096, 1));
    try_all(bit_flips(whole, count, whole.size(), 2));
  }

  TemporaryDirectory directory;
  TemporaryDirectory zoo_directory;
  std::unique_ptr<LayoutService> service;
};

TEST_F(HostileFiles, OfHdf5CostNoMoreThanTheirLayout) {
  zoo::make_hdf5_files(zoo_directory.path(), {.tiny_variables = 50, .huge_file_bytes = 0});
  for (const auto& path : files_below(zoo_directory.path())) {
    if (path.extension() == ".h5") try_damages(path, 60);
  }
}

TEST_F(HostileFiles, OfNetcdfCostNoMoreThanTheirLayout) {
  zoo::make_netcdf_files(zoo_directory.path());
  for (const auto& path : files_below(zoo_directory.path())) try_damages(path, 100);
}

TEST_F(HostileFiles, OfElfCostNoMoreThanTheirLayout) {
  zoo::make_elf_cores(zoo_directory.path());
  for (const auto& path : files_below(zoo_directory.path())) try_damages(path, 100);
}

TEST_F(HostileFiles, OfNumpyCostNoMoreThanTheirLayout) {
  zoo::make_npy_files(zoo_directory.path());
  for (const auto& path : files_below(zoo_directory.path())) try_damages(path, 100);
}

TEST_F(HostileFiles, OfZipArchivesCostNoMoreThanTheirLayout) {
  zoo::make_zip_files(zoo_directory.path());
  for (const auto& path : files_below(zoo_directory.path())) try_damages(path, 100);
}

TEST_F(HostileFiles, OfTorchStreamsCostNoMoreThanTheirLayout) {
  zoo::make_torch_stream_files(zoo_directory.path());
  for (const auto& path : files_below(zoo_directory.path())) try_damages(path, 100);
}

TEST_F(HostileFiles, OfSafetensorsCostNoMoreThanTheirLayout) {
  zoo::make_safetensors_files(zoo_directory.path());
  for (const auto& path : files_below(zoo_directory.path())) try_damages(path, 100);
}

TEST_F(HostileFiles, OfFortranRecordsCostNoMoreThanTheirLayout) {
  zoo::make_fortran_files(zoo_directory.path());
  for (const auto& path : files_below(zoo_directory.path())) try_damages(path, 100);
}

TEST_F(HostileFiles, SuchAsDamagedSidecarsCostNoMoreThanTheLayout) {
  zoo::make_raw_files(zoo_directory.path());
  std::filesystem::path data = zoo_directory.path() / "fields.bin";
  std::filesystem::path sidecar = data.string() + std::string(kSidecarSuffix);
  std::string whole = read_text(sidecar);
  uint64_t file_bytes = std::filesystem::file_size(data);
  std::vector<std::string> variants = bit_flips(whole, 200, whole.size(), 3);
  for (const std::string& variant : truncations(whole, 50)) variants.push_back(variant);
  for (const std::string& variant : variants) {
    write_text(sidecar, variant);
    LayoutOutcome outcome = service->read(data.string(), file_bytes);
    EXPECT_TRUE(validate_layout(outcome.layout, file_bytes).ok());
    if (outcome.warning) {
      EXPECT_EQ(outcome.layout, opaque_layout(file_bytes, "/fields.bin"));
      expect_no_exit(*outcome.warning);
    }
  }
}

TEST_F(HostileFiles, SuchAsChunksOfZarrWithDamagedDescriptionsCostNoMoreThanTheLayout) {
  constexpr uint64_t chunk_bytes = 40 * 25 * 8;
  const std::string plain2 =
      R"({"zarr_format":2,"shape":[80,50],"chunks":[40,25],"dtype":"<f8","compressor":null,"filters":null,)"
      R"("order":"C","fill_value":0})";
  const std::string plain3 = R"({"zarr_format":3,"node_type":"array","shape":[80,50],"data_type":"float64",)"
                             R"("chunk_grid":{"name":"regular","configuration":{"chunk_shape":[40,25]}},)"
                             R"("chunk_key_encoding":{"name":"default","configuration":{"separator":"/"}},)"
                             R"("codecs":[{"name":"bytes","configuration":{"endian":"little"}}],"fill_value":0})";
  size_t array = 0, understood = 0;
  for (const auto& [description, whole, chunk] :
       {std::tuple(".zarray", plain2, "0.1"), std::tuple("zarr.json", plain3, "c.0.1")}) {
    std::vector<std::string> variants = bit_flips(whole, 200, whole.size(), 4);
    for (const std::string& variant : truncations(whole, 50)) variants.push_back(variant);
    // Numbers that are negative, no integers, or too large; their products, too.
    for (const char* number : {"0", "-40", "40.5", "1e400", "4294967296", "2305843009213693992", "9223372036854775808",
                               "18446744073709551615", "184467440737095516160", "null", "[40]", "40,40"}) {
      std::string& variant = variants.emplace_back(whole);
      for (size_t at = variant.find("40,"); at != std::string::npos; at = variant.find("40,", at + std::strlen(number)))
        variant.replace(at, 2, number);
    }
    variants.push_back(whole);
    for (const std::string& variant : variants) {
      const std::filesystem::path folder = directory.path() / ("array" + std::to_string(array++));
      std::filesystem::create_directory(folder);
      write_text(folder / description, variant);
      for (const uint64_t bytes : {chunk_bytes, chunk_bytes - 1, chunk_bytes + 1, uint64_t{0}}) {
        write_text(folder / chunk, std::string(bytes, 'x'));
        const LayoutOutcome outcome = service->read((folder / chunk).string(), bytes);
        EXPECT_TRUE(validate_layout(outcome.layout, bytes).ok());
        EXPECT_FALSE(outcome.warning) << *outcome.warning;
        uint64_t covered = 0;
        for (const Variable& variable : outcome.layout.variables) covered += variable.stored_bytes();
        EXPECT_EQ(covered, bytes);
        if (&variant == &variants.back() && bytes == chunk_bytes && outcome.layout.format == "zarr") ++understood;
      }
    }
  }
  EXPECT_EQ(understood, 2u);
}

TEST_F(HostileFiles, WithCountsOfBillionsInSparseFilesAreRefusedInTime) {
  std::string header("CDF\x05\0\0\0\0\0\0\0\0\0\0\0\x0a\x7f\xff\xff\xff\xff\xff\xff\xff", 24);
  std::string path = (directory.path() / "counts").string();
  write_text(path, header);
  std::filesystem::resize_file(path, uint64_t{1} << 40);
  EXPECT_TRUE(service->read(path, uint64_t{1} << 40).warning);
  std::string fewer = header.substr(0, 16) + std::string("\0\0\0\0\0\x90\0\0", 8);
  write_text(path, fewer);
  std::filesystem::resize_file(path, uint64_t{1} << 40);
  LayoutOutcome outcome = service->read(path, uint64_t{1} << 40);
  EXPECT_TRUE(validate_layout(outcome.layout, uint64_t{1} << 40).ok());
}

#ifdef VARVE_ZOO_WITH_HDF5
TEST_F(HostileFiles, SuchAsAGroupThatHoldsItselfAreReadOnce) {
  zoo::make_hdf5_files(zoo_directory.path(), {.tiny_variables = 10, .huge_file_bytes = 0});
  std::filesystem::path path = zoo_directory.path() / "groups.h5";
  std::string contents = read_text(path);
  // In the symbol table node of group "/0", let every object be the root group: circles without end, if one followed
  // them.
  size_t node = contents.find("SNOD"), changed = 0;
  for (; node != std::string::npos; node = contents.find("SNOD", node + 1)) {
    constexpr size_t kHeaderBytes = 8, kObjectAddressAt = 8, kRootAddress = 96;
    uint64_t root = kRootAddress;
    std::memcpy(contents.data() + node + kHeaderBytes + kObjectAddressAt, &root, sizeof root);
    ++changed;
  }
  ASSERT_GT(changed, 3U);
  EXPECT_EQ(try_all({contents}), 1U);
}
#endif

}  // namespace
}  // namespace varve
