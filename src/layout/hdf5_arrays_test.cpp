#define H5_USE_110_API
#include <hdf5.h>

#include <gtest/gtest.h>

#include <list>
#include <random>
#include <set>

#include "layout/decoding_service.h"
#include "layout/test_files.h"
#include "zoo/hdf5_writing.h"
#include "zoo/zoo.h"

namespace varve {
namespace {

EncodedSource source_of(const std::string& contents) {
  return {.identity = &contents,
          .read = [&contents](uint64_t offset, MutableByteSpan into) -> Result<uint64_t> {
            const ByteSpan bytes = as_bytes(contents).subspan(std::min<size_t>(offset, contents.size()));
            const size_t count = std::min(bytes.size(), into.size());
            std::copy_n(bytes.begin(), count, into.begin());
            return count;
          },
          .bytes = contents.size()};
}

/// All of a dataset, as the library itself reads it.
ByteVector whole_of(hid_t file, const Variable& array) {
  const zoo::Id dataset(H5Dopen2(file, array.name.c_str(), H5P_DEFAULT), H5Dclose);
  const zoo::Id type(H5Dget_type(dataset), H5Tclose);
  ByteVector bytes(array_bytes(array.shape, array.type.bytes).value());
  EXPECT_TRUE(bytes.empty() || H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()) >= 0) << array.name;
  return bytes;
}

ByteVector box_of(const ByteVector& whole, const Variable& array, const CellBox& box) {
  const uint64_t cell = array.type.bytes;
  ByteVector cells(box.cell_count() * cell);
  const CellBox all{std::vector<uint64_t>(array.shape.size(), 0), array.shape};
  for_each_cell_run(box, all, box, [&](const CellRun& run) {
    std::copy_n(whole.data() + run.from * cell, run.cells * cell, cells.data() + run.to * cell);
    return Status();
  }).ignore("it cannot fail");
  return cells;
}

CellBox any_box(const std::vector<uint64_t>& shape, std::mt19937& random) {
  CellBox box;
  for (const uint64_t extent : shape) {
    box.offset.push_back(std::uniform_int_distribution<uint64_t>(0, extent)(random));
    box.cells.push_back(std::uniform_int_distribution<uint64_t>(0, extent - box.offset.back())(random));
  }
  return box;
}

struct Hdf5Arrays : testing::Test {
  Hdf5Arrays() { zoo::make_hdf5_files(directory.path(), {.tiny_variables = 20, .huge_file_bytes = 0}); }
  TemporaryDirectory directory;
  DecodingService service{make_decoding_reader()};
};

TEST_F(Hdf5Arrays, AreWhatTheLibraryReadsWholeAndInBoxes) {
  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const LayoutReaders readers = built_in_readers();
  size_t read = 0, encoded = 0;
  std::list<std::string> files;  // each at a place of its own
  std::set<std::string> refused;
  for (const auto& path : files_below(directory.path())) {
    if (path.extension() != ".h5") continue;
    const std::string& contents = files.emplace_back(read_text(path));
    const Layout layout = read_here(readers, path).value();
    const zoo::Id file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose);
    for (const Variable& array : layout.variables) {
      SCOPED_TRACE(path.filename().string() + ":" + array.name);
      const Status possible = service.check(source_of(contents), array);
      if (!possible.ok()) {
        EXPECT_EQ(possible.code(), StatusCode::unsupported) << possible.to_string();
        refused.insert(array.name.substr(array.name.rfind('/') + 1));
        continue;
      }
      if (array_bytes(array.shape, array.type.bytes).value_or(UINT64_MAX) > 64_MiB) continue;
      const ByteVector whole = whole_of(file, array);
      for (int i = 0; i < 6; ++i) {
        const CellBox box =
            i == 0 ? CellBox{std::vector<uint64_t>(array.shape.size(), 0), array.shape} : any_box(array.shape, random);
        ByteVector cells(box.cell_count() * array.type.bytes, std::byte{0xee});
        const Status status = service.read(source_of(contents), {array, box}, cells);
        ASSERT_TRUE(status.ok()) << status.to_string();
        ASSERT_EQ(cells, box_of(whole, array, box));
      }
      ++read;
      encoded += array.encoded ? 1 : 0;
    }
  }
  EXPECT_GT(read, 150U);
  EXPECT_GT(encoded, 10U);
  EXPECT_TRUE(refused.contains("vlen text")) << "of variable length";
}

TEST_F(Hdf5Arrays, AreRefusedIfTheyAreNotWhatTheirLayoutSays) {
  const std::filesystem::path path = directory.path() / "chunks.h5";
  const std::string contents = read_text(path);
  const Layout layout = read_here(built_in_readers(), path).value();
  Variable array = layout.variables.front();
  ASSERT_TRUE(service.check(source_of(contents), array).ok());
  for (const auto change :
       {+[](Variable& changed) { changed.shape.front() += 1; }, +[](Variable& changed) { changed.shape.push_back(1); },
        +[](Variable& changed) { changed.type.bytes *= 2; }, +[](Variable& changed) { changed.name += "?"; }}) {
    Variable changed = array;
    change(changed);
    // Not the one that is open.
    DecodingService other(make_decoding_reader());
    EXPECT_EQ(other.check(source_of(contents), changed).code(), StatusCode::corrupt);
    EXPECT_EQ(service.check(source_of(contents), changed).code(), StatusCode::corrupt);
    ASSERT_TRUE(service.check(source_of(contents), array).ok());
  }
}

TEST_F(Hdf5Arrays, OfDamagedFilesCostNoMoreThanThemselves) {
  const std::filesystem::path path = directory.path() / "chunks.h5";
  const std::string whole = read_text(path);
  const Layout layout = read_here(built_in_readers(), path).value();
  DecodingService patient(make_decoding_reader(), {.timeout = std::chrono::milliseconds(2000), .memory_bytes = 1_GiB});
  std::mt19937 random(1);
  std::vector<std::string> variants;
  for (size_t i = 0; i < 60; ++i) {
    std::string& variant = variants.emplace_back(whole);
    if (i % 3 == 0) variant.resize(whole.size() * i / 60);
    for (size_t flips = i % 3 == 0 ? 0 : 1 + random() % 4; flips > 0; --flips)
      variant[random() % (i % 3 == 1 ? 8192 : whole.size())] ^= static_cast<char>(1 << random() % 8);
  }
  size_t read = 0;
  for (const std::string& variant : variants) {
    for (size_t i = 0; i < std::min<size_t>(layout.variables.size(), 8); ++i) {
      const Variable& array = layout.variables[i];
      const CellBox all{std::vector<uint64_t>(array.shape.size(), 0), array.shape};
      ByteVector cells(all.cell_count() * array.type.bytes);
      const Status status = patient.read(source_of(variant), {array, all}, cells);
      EXPECT_EQ(status.to_string().find("crashed (exit code"), std::string::npos) << status.to_string();
      read += status.ok() ? 1 : 0;
    }
  }
  EXPECT_GT(read, 0U);
}

}  // namespace
}  // namespace varve
