#include "layout/layout_reader.h"

#include <gtest/gtest.h>

#include <random>

#include "layout/test_files.h"
#include "zoo/zoo.h"

namespace varve {
namespace {

Result<Layout> read_plain(const std::filesystem::path& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  FileBlocks blocks;
  blocks.open(read_file_at(fd.get()));
  return read_plain_hdf5(blocks, std::filesystem::file_size(path));
}

/// Compares what is found in plain files with what the library's reader finds; returns how many were plain.
size_t compare_with_library(const std::filesystem::path& folder) {
  const LayoutReaders readers = built_in_readers();
  size_t plain_count = 0;
  for (const auto& path : files_below(folder)) {
    const Result<Layout> plain = read_plain(path);
    if (!plain.ok()) continue;
    const Result<Layout> expected = read_here(readers, path);
    EXPECT_TRUE(expected.ok()) << path << expected.status().to_string();
    if (!expected.ok()) continue;
    EXPECT_EQ(*plain, *expected) << path;
    ++plain_count;
  }
  return plain_count;
}

class PlainHdf5 : public testing::Test {
 protected:
  PlainHdf5() { zoo::make_hdf5_files(directory.path(), {.tiny_variables = 300, .huge_file_bytes = 0}); }
  TemporaryDirectory directory;
};

TEST_F(PlainHdf5, IsUnderstoodAsTheLibraryUnderstandsIt) { EXPECT_GE(compare_with_library(directory.path()), 3U); }

TEST_F(PlainHdf5, IsNoFileOfTheNewFormatsAndNoneWithUserBlocks) {
  EXPECT_TRUE(read_plain(directory.path() / "tiny.h5").ok());
  EXPECT_TRUE(read_plain(directory.path() / "chunks.h5").ok());
  for (const char* name :
       {"tiny_latest.h5", "chunks_latest.h5", "storage.h5", "types.h5", "user_block.h5", "elsewhere.h5", "groups.h5"}) {
    EXPECT_EQ(read_plain(directory.path() / name).status().code(), StatusCode::unsupported) << name;
  }
}

class DamagedPlainHdf5 : public PlainHdf5, public testing::WithParamInterface<const char*> {};

TEST_P(DamagedPlainHdf5, GivesAValidLayoutOrNone) {
  const std::string whole = read_text(directory.path() / GetParam());
  const std::filesystem::path damaged = directory.path() / "damaged";
  const auto check = [&](const std::string& contents) {
    write_text(damaged, contents);
    const Result<Layout> layout = read_plain(damaged);
    if (layout.ok()) validate_layout(*layout, contents.size()).ignore("the service looks at it, too");
    return layout.ok();
  };
  EXPECT_TRUE(check(whole));
  for (size_t i = 0; i < 100; ++i) EXPECT_FALSE(check(whole.substr(0, whole.size() * i / 100))) << i;
  const uint32_t seed = 1;
  std::mt19937 random(seed);
  for (size_t i = 0; i < 3000; ++i) {
    std::string variant = whole;
    for (size_t flips = 1 + random() % 8; flips > 0; --flips) {
      const size_t region = i % 2 == 0 ? whole.size() : std::min<size_t>(whole.size(), 4096);
      variant[random() % region] ^= static_cast<char>(1 << random() % 8);
    }
    check(variant);
  }
}

INSTANTIATE_TEST_SUITE_P(Files, DamagedPlainHdf5, testing::Values("tiny.h5", "chunks.h5"));

TEST(PlainHdf5OnRealFiles, IsUnderstoodAsTheLibraryUnderstandsIt) {
  const char* data = std::getenv("VARVE_TEST_DATA");
  if (data == nullptr) GTEST_SKIP() << "VARVE_TEST_DATA is not set";
  size_t plain_count = 0;
  for (const char* folder : {"enzo_implosion_io32", "enzo_cosmology64_io32_8ranks", "lulesh_3ranks"}) {
    if (std::filesystem::exists(std::filesystem::path(data) / folder)) {
      plain_count += compare_with_library(std::filesystem::path(data) / folder);
    }
  }
  EXPECT_GT(plain_count, 100U);
}

}  // namespace
}  // namespace varve
