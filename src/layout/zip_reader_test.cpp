#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "layout/layout_reader.h"
#include "layout/test_files.h"
#include "layout/zip_archive.h"
#include "zoo/array_files.h"
#include "zoo/pattern.h"
#include "zoo/zoo.h"

namespace varve {
namespace {

struct ZipReader : testing::Test {
  ZipReader() { zoo::make_zip_files(directory.path()); }
  std::string contents_of(const char* name) const { return read_text(directory.path() / name); }
  TemporaryDirectory directory;
};

Result<Layout> read_zip(const std::string& contents) {
  FileWindow file(as_bytes(contents));
  return read_zip_layout(file);
}

/// What the zoo's files are made of.
std::string random_text(size_t bytes, uint32_t seed) {
  const std::vector<char> made = zoo::pattern(bytes, seed);
  return {made.begin(), made.end()};
}

std::string described(const Variable& variable) {
  std::string text = variable.name + " " + variable.type.name() + (variable.encoded ? " encoded" : "");
  for (const uint64_t extent : variable.shape) text += " " + std::to_string(extent);
  return text;
}
std::vector<std::string> described(const Layout& layout) {
  std::vector<std::string> texts;
  for (const Variable& variable : layout.variables) texts.push_back(described(variable));
  return texts;
}

TEST_F(ZipReader, FindsTheArraysOfNumpy) {
  for (const char* name : {"arrays.npz", "large.npz", "streamed.npz"}) {
    const std::string contents = contents_of(name);
    const Result<Layout> layout = read_here(built_in_readers(), directory.path() / name);
    ASSERT_TRUE(layout.ok()) << name << layout.status().to_string();
    EXPECT_TRUE(validate_layout(*layout, contents.size()).ok());
    EXPECT_EQ(layout->format, "npz");
    EXPECT_EQ(described(*layout), (std::vector<std::string>{"/density F64LE 10 20", "/packed BYTES encoded 700",
                                                            "/ids U32BE 100", "/notes/readme.txt BYTES 300"}));
    EXPECT_EQ(bytes_at(contents, layout->variables[0]), random_text(1600, 1));
    EXPECT_EQ(bytes_at(contents, layout->variables[1]), random_text(700, 2));
    EXPECT_EQ(bytes_at(contents, layout->variables[2]), random_text(400, 3));
  }
}

TEST_F(ZipReader, NamesTheTensorsOfTorch) {
  const std::string contents = contents_of("state.pt");
  const Result<Layout> layout = read_here(built_in_readers(), directory.path() / "state.pt");
  ASSERT_TRUE(layout.ok()) << layout.status().to_string();
  EXPECT_TRUE(validate_layout(*layout, contents.size()).ok());
  EXPECT_EQ(layout->format, "torch");
  EXPECT_EQ(described(*layout), (std::vector<std::string>{"/model/layer1.weight F32LE 10 20",
                                                          "/optimizer/state/0/exp_avg F64LE 100", "/half O2 64"}));
  for (uint32_t i = 0; i < 3; ++i)
    EXPECT_EQ(bytes_at(contents, layout->variables[i]), random_text(i < 2 ? 800 : 128, 5 + i));
}

TEST_F(ZipReader, FindsMembersThatLieBehindTheFirst4GiB) {
  const std::string array = zoo::npy_file("<f8", "(4,)", std::string(32, 'x'));
  std::string archive = zoo::zip_file({{"a.bin", "?"}, {"b.npy", array}}, {.large = true});
  // Makes the first member longer, by bytes that nobody has to look at.
  constexpr uint64_t more = 5_GiB;
  constexpr size_t entry_head_bytes = 46, sizes_at = 4, end_place_at = 48;
  const size_t second_member = archive.find("PK\x03\x04", 1);
  const size_t first_entry = archive.find("PK\x01\x02"), second_entry = archive.find("PK\x01\x02", first_entry + 1);
  const size_t end = archive.find("PK\x06\x06"), end_place = archive.find("PK\x06\x07");
  const size_t first_sizes = first_entry + entry_head_bytes + 5 + sizes_at;
  const size_t second_sizes = second_entry + entry_head_bytes + 5 + sizes_at;
  for (const size_t at : {first_sizes, first_sizes + 8, second_sizes + 16, end + end_place_at, end_place + 8}) {
    const uint64_t longer = load_le<uint64_t>(as_bytes(archive).data() + at) + more;
    std::memcpy(archive.data() + at, &longer, sizeof longer);
  }
  const auto read = [&](uint64_t offset, MutableByteSpan into) -> Result<uint64_t> {
    const uint64_t file_bytes = archive.size() + more;
    const uint64_t count = std::min<uint64_t>(into.size(), file_bytes - std::min(offset, file_bytes));
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t at = offset + i;
      into[i] = at < second_member          ? as_bytes(archive)[at]
                : at < second_member + more ? std::byte{0}
                                            : as_bytes(archive)[at - more];
    }
    return count;
  };
  FileWindow file(read, archive.size() + more);
  const Result<Layout> layout = read_zip_layout(file);
  ASSERT_TRUE(layout.ok()) << layout.status().to_string();
  ASSERT_EQ(layout->variables.size(), 2U);
  EXPECT_EQ(layout->variables[0].stored_bytes(), more + 1);
  EXPECT_EQ(layout->variables[1].name, "/b");
  EXPECT_EQ(layout->variables[1].extents[0].offset, archive.find(std::string(32, 'x')) + more);
}

TEST_F(ZipReader, LeavesOtherArchivesAlone) {
  EXPECT_EQ(read_here(built_in_readers(), directory.path() / "text.zip").status().code(), StatusCode::not_found);
}

TEST_F(ZipReader, NamesTensorsByNumberWhereThePickleIsNotUnderstood) {
  zoo::PickleWriter pickle;
  pickle.raw("}").text("weight").tensor("LongStorage", "0", 10, 0, {10}, {1}).raw("s\xff");
  const std::string archive = zoo::zip_file(
      {{"a/data.pkl", pickle.end()}, {"a/data/0", std::string(80, 'x')}, {"a/data/7", std::string(9, 'y')}});
  const Result<Layout> layout = read_zip(archive);
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(described(*layout), (std::vector<std::string>{"/data/0 I64LE 10", "/data/7 BYTES 9"}));
}

TEST_F(ZipReader, GoesByTheOrderThatTorchSays) {
  zoo::PickleWriter pickle;
  pickle.raw("}").text("weight").tensor("LongStorage", "0", 10, 0, {10}, {1}).raw("s");
  const std::string archive =
      zoo::zip_file({{"a/data.pkl", pickle.end()}, {"a/byteorder", "big"}, {"a/data/0", std::string(80, 'x')}});
  const Result<Layout> layout = read_zip(archive);
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(described(*layout), std::vector<std::string>{"/weight I64BE 10"});
}

TEST_F(ZipReader, TakesStoragesForBytesThatAreNotAsLongAsTheyShouldBe) {
  zoo::PickleWriter pickle;
  pickle.raw("}").text("weight").tensor("LongStorage", "0", 10, 0, {10}, {1}).raw("s");
  const Result<Layout> layout =
      read_zip(zoo::zip_file({{"a/data.pkl", pickle.end()}, {"a/data/0", std::string(83, 'x')}}));
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(described(*layout), std::vector<std::string>{"/weight BYTES 83"});
}

TEST_F(ZipReader, RefusesArchivesThatAreCutOffAnywhere) {
  for (const char* name : {"arrays.npz", "large.npz", "state.pt"}) {
    const std::string whole = contents_of(name);
    for (size_t size = 0; size < whole.size(); ++size) EXPECT_FALSE(read_zip(whole.substr(0, size)).ok()) << size;
  }
}

TEST_F(ZipReader, RefusesDirectoriesThatLie) {
  const std::string whole = contents_of("large.npz");
  const size_t end = whole.find("PK\x06\x06"), entry = whole.find("PK\x01\x02");
  ASSERT_NE(end, std::string::npos);
  constexpr size_t entry_head_bytes = 46, sizes_at = 4;
  const size_t sizes = entry + entry_head_bytes + std::string("density.npy").size() + sizes_at;
  // Counts, sizes and places, each as a number of 64 bits.
  for (const size_t at : {end + 24, end + 32, end + 40, end + 48, sizes, sizes + 8, sizes + 16}) {
    for (const uint64_t wrong : {uint64_t{1} << 63, UINT64_MAX, uint64_t{0xffffffff}, whole.size() + 1, uint64_t{1}}) {
      std::string damaged = whole;
      std::memcpy(damaged.data() + at, &wrong, sizeof wrong);
      EXPECT_FALSE(read_zip(damaged).ok()) << at << " " << wrong;
    }
  }
}

TEST_F(ZipReader, RefusesMembersThatOverlap) {
  std::string archive =
      zoo::zip_file({{"a.npy", zoo::npy_file("|b1", "(4,)", "abcd")}, {"b.npy", zoo::npy_file("|b1", "(4,)", "efgh")}});
  ASSERT_TRUE(read_zip(archive).ok());
  constexpr size_t offset_at = 42;
  const size_t second = archive.rfind("PK\x01\x02");
  archive.replace(second + offset_at, 4, std::string(4, '\0'));
  EXPECT_EQ(read_zip(archive).status().code(), StatusCode::corrupt);
}

TEST_F(ZipReader, SurvivesAnyBitsThatChange) {
  const uint32_t seed = 1;
  std::mt19937 random(seed);
  for (const char* name : {"arrays.npz", "large.npz", "streamed.npz", "state.pt"}) {
    const std::string whole = contents_of(name);
    for (size_t i = 0; i < 5000; ++i) {
      std::string variant = whole;
      for (size_t flips = 1 + random() % 4; flips > 0; --flips) {
        // Mostly in the directory at the end.
        const size_t region = i % 4 == 0 ? whole.size() : std::min<size_t>(whole.size(), 700);
        variant[whole.size() - 1 - random() % region] ^= static_cast<char>(1 << random() % 8);
      }
      const Result<Layout> layout = read_zip(variant);
      EXPECT_TRUE(!layout.ok() || validate_layout(*layout, variant.size()).ok());
    }
  }
}

}  // namespace
}  // namespace varve
