// Folders of Zarr's arrays whose descriptions are damaged, or were made to do harm: what is saved comes back all the
// same.

#include <gtest/gtest.h>

#include <random>

#include "core/memory_file_system.h"
#include "engine/inspect.h"
#include "sets/peak_memory.h"
#include "sets/saving.h"

namespace varve {
namespace {

using test::clear_peak;
using test::peak_memory_bytes;
using test::TempFolder;

constexpr uint64_t kMemoryGrowthMax = 300_MiB;
constexpr size_t kChunkBytes = 40 * 25 * 8;

std::string zarr2_array(const std::string& shape, const std::string& chunks, const std::string& type = "\"<f8\"") {
  return R"({"zarr_format":2,"shape":)" + shape + R"(,"chunks":)" + chunks + R"(,"dtype":)" + type +
         R"(,"compressor":null,"filters":null,"order":"C","fill_value":0})";
}
std::string zarr3_array(const std::string& shape, const std::string& chunks, const std::string& type = "\"float64\"") {
  return R"({"zarr_format":3,"node_type":"array","shape":)" + shape + R"(,"data_type":)" + type +
         R"(,"chunk_grid":{"name":"regular","configuration":{"chunk_shape":)" + chunks +
         R"(}},"chunk_key_encoding":{"name":"default","configuration":{"separator":"/"}},)"
         R"("codecs":[{"name":"bytes","configuration":{"endian":"little"}}],"fill_value":0})";
}

/// So many times `text`.
std::string repeated(const std::string& text, size_t count) {
  std::string made;
  for (size_t i = 0; i < count; ++i) made += text;
  return made;
}

/// Pairs of shapes, of an array and of its chunks, that no program writes.
std::vector<std::pair<std::string, std::string>> hostile_shapes() {
  const std::string most = "18446744073709551615", half = "9223372036854775808", root = "4294967296";
  const std::string many = "[1" + repeated(",1", 50'000) + "]";
  return {{"[" + most + "," + most + "]", "[" + most + "," + most + "]"},
          {"[" + half + ",2]", "[" + half + ",2]"},
          // Products and sizes that are 0, or those of a chunk's file, modulo 2^64.
          {"[" + root + "," + root + "]", "[" + root + "," + root + "]"},
          {"[8192," + half + "]", "[1000,2305843009213693952]"},
          {"[40,25]", "[2305843009213693992,25]"},
          {"[184467440737095516160,25]", "[184467440737095516160,25]"},
          {"[1e400,25]", "[1e400,25]"},
          {"[-40,-25]", "[-40,-25]"},
          {"[40,-9223372036854775808]", "[40,-9223372036854775808]"},
          {"[0,0]", "[0,0]"},
          {"[40,25]", "[0,25]"},
          {"[40.5,25]", "[40.5,25.0]"},
          {"[80,50]", "[40]"},
          {"[80]", "[40,25]"},
          {"[]", "[40,25]"},
          {"[80,50]", "[]"},
          {"[[80],[50]]", "[[40],[25]]"},
          {"{\"80\":50}", "\"40,25\""},
          {"null", "null"},
          {many, many},
          // Chunks' files are shorter, and longer, than these.
          {"[80,50]", "[40,26]"},
          {"[80,50]", "[40,24]"},
          {"[80,50]", "[1,1]"},
          {"[80,50]", "[1000000,1000000]"}};
}

/// What may be in a description's place.
std::vector<std::string> hostile_texts() {
  std::vector<std::string> texts = {"",
                                    "{",
                                    "null",
                                    "[]",
                                    "no JSON at all",
                                    std::string("\0\0\0\0", 4),
                                    "\xff\xfe{\"zarr_format\":2}",
                                    R"({"zarr_format":99999999999999999999})",
                                    R"({"zarr_format":-2,"shape":[1],"chunks":[1]})",
                                    R"({"zarr_format":2,"zarr_format":3,"node_type":"group"})",
                                    repeated("[", 200'000),
                                    repeated("{\"a\":", 50'000),
                                    repeated("[", 50'000) + repeated("]", 50'000),
                                    "[" + repeated("0,", 120'000) + "0]",
                                    "\"" + repeated("\\u0000", 40'000) + "\"",
                                    std::string(1'000'000, '{')};
  for (const auto& [shape, chunks] : hostile_shapes()) {
    texts.push_back(zarr2_array(shape, chunks));
    texts.push_back(zarr3_array(shape, chunks));
  }
  const std::string types[] = {"\"<f99999999999999999999\"",
                               "\"<V18446744073709551615\"",
                               "\">f-8\"",
                               "\"|O\"",
                               "\"\"",
                               "[[\"a\",\"<f8\",[4294967296,4294967296]]]",
                               "8",
                               "\"r9999999999\"",
                               "\"complex128\""};
  for (const std::string& type : types) {
    texts.push_back(zarr2_array("[80,50]", "[40,25]", type));
    texts.push_back(zarr3_array("[80,50]", "[40,25]", type));
  }
  return texts;
}

struct HostileZarr : testing::Test {
  /// An array, its groups, and chunks that are as long as they should be, shorter, longer or empty; `text` in place of
  /// each description.
  void lay_array(const std::string& folder, const std::string& text) const {
    for (const char* name : {"/.zgroup", "/.zattrs", "/zarr.json", "/a/.zarray", "/a/.zattrs", "/a/zarr.json"})
      test::write_file(place / "saved/" + folder + name, text);
    const std::vector<std::pair<std::string, size_t>> chunks = {
        {"0.0", kChunkBytes},   {"0.1", kChunkBytes - 1},      {"1.0", kChunkBytes + 1}, {"1.1", 0},
        {"0", kChunkBytes},     {"1/1", 3 * kChunkBytes},      {"c/0/0", kChunkBytes},   {"c/0/1", 7},
        {"c.1.1", kChunkBytes}, {"99999999999999999999.0", 16}};
    for (const auto& [name, bytes] : chunks) {
      const ByteVector field = test::smooth_field(bytes / 8 + 1, bytes);
      test::write_file(place / "saved/" + folder + "/a/" + name, ByteSpan(field).first(bytes));
    }
  }
  void expect_comes_back() {
    clear_peak();
    const uint64_t before = peak_memory_bytes();
    const auto store = test::make_store(fs);
    const Result<SaveReport> saved = test::save(*store, place / "saved", "run", 1);
    ASSERT_TRUE(saved.ok()) << saved.status().to_string();
    EXPECT_LT(peak_memory_bytes(), before + kMemoryGrowthMax);
    EXPECT_TRUE(test::restores_as(*store, {"run", 1}, test::snapshot_of(place / "saved")));
    EXPECT_TRUE(test::is_whole(*store));
    const Result<SetDetails> details = inspect_set(*store, {"run", 1});
    ASSERT_TRUE(details.ok()) << details.status().to_string();
    files = details->files;
  }

  MemoryFileSystem fs;
  TempFolder place;
  std::vector<FileDetails> files;  ///< of what came back
};

TEST_F(HostileZarr, ComesBackWhateverItsDescriptionsSay) {
  const std::vector<std::string> texts = hostile_texts();
  for (size_t i = 0; i < texts.size(); ++i) lay_array("array" + std::to_string(i) + ".zarr", texts[i]);
  expect_comes_back();
}

TEST_F(HostileZarr, ComesBackHoweverItsDescriptionsAreDamaged) {
  std::mt19937_64 random(1);
  size_t array = 0;
  for (const std::string& whole : {zarr2_array("[80,50]", "[40,25]"), zarr3_array("[80,50]", "[40,25]")}) {
    lay_array("whole" + std::to_string(array++) + ".zarr", whole);
    for (int variant = 0; variant < 60; ++variant) {
      std::string damaged = whole.substr(0, variant % 3 == 0 ? random() % whole.size() : whole.size());
      for (uint64_t flips = random() % 4; flips > 0 && !damaged.empty(); --flips)
        damaged[random() % damaged.size()] ^= static_cast<char>(1 << random() % 8);
      lay_array("damaged" + std::to_string(array++) + ".zarr", damaged);
    }
  }
  expect_comes_back();
  // So the arrays are read as such where they are whole.
  size_t plain = 0;
  for (const FileDetails& file : files) {
    for (const VariableDetails& variable : file.variables)
      plain += file.path.starts_with("whole") && variable.shape == std::vector<uint64_t>{40, 25} ? 1 : 0;
  }
  EXPECT_EQ(plain, 3u) << "0.0 of version 2; c/0/0 and c.1.1 of version 3";
}

TEST_F(HostileZarr, ComesBackWhereDescriptionsAreNoFilesOrLieInCircles) {
  const std::string whole = zarr2_array("[80,50]", "[40,25]");
  lay_array("linked.zarr", whole);
  const std::filesystem::path folder = place / "saved";
  const auto link_instead = [&](const std::string& name, const std::string& to) {
    std::filesystem::remove_all(folder / name);
    std::filesystem::create_symlink(to, folder / name);
  };
  link_instead("linked.zarr/a/.zarray", ".zarray");
  link_instead("linked.zarr/.zgroup", "/dev/zero");
  link_instead("linked.zarr/a/zarr.json", "../a");
  link_instead("linked.zarr/a/2", "../a");
  lay_array("folders.zarr", whole);
  for (const char* name : {"folders.zarr/a/.zarray", "folders.zarr/a/zarr.json"}) {
    std::filesystem::remove_all(folder / name);
    std::filesystem::create_directories(folder / name);
  }
  std::string deep = "deep.zarr/a";
  test::write_file(folder / deep / ".zarray", whole);
  for (int level = 0; level < 200; ++level) deep += "/0";
  test::write_file(folder / deep / "0", test::smooth_field(1000, 1));
  // A description that is a hole of a terabyte.
  lay_array("sparse.zarr", "");
  std::filesystem::resize_file(folder / "sparse.zarr/a/.zarray", uint64_t{1} << 40);
  expect_comes_back();
}

}  // namespace
}  // namespace varve
