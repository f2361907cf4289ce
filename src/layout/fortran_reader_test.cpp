#include <gtest/gtest.h>

#include <random>

#include "layout/layout_reader.h"
#include "layout/test_files.h"
#include "zoo/array_files.h"
#include "zoo/zoo.h"

namespace varve {
namespace {

using zoo::fortran_record;
using zoo::record_length;

ReadAt read_text_at(const std::string& text) {
  return [&text](uint64_t offset, MutableByteSpan into) -> Result<uint64_t> {
    if (offset >= text.size()) return uint64_t{0};
    const ByteSpan there = as_bytes(text).subspan(offset);
    const size_t count = std::min(there.size(), into.size());
    std::copy_n(there.begin(), count, into.begin());
    return uint64_t{count};
  };
}

bool recognises(const std::string& text) {
  const std::unique_ptr<LayoutReader> reader = make_fortran_reader();
  return reader->recognises(read_text_at(text), as_bytes(text).first(std::min(text.size(), kProbeBytes)), text.size());
}

Result<Layout> read_records(const std::string& text) {
  EXPECT_TRUE(recognises(text));
  return make_fortran_reader()->read_safely(read_text_at(text), text.size());
}

TEST(FortranReader, FindsRecordsInEitherByteOrder) {
  for (const bool big_endian : {false, true}) {
    const std::string file = fortran_record("head", big_endian) + fortran_record("", big_endian) +
                             fortran_record(std::string(1000, 'a'), big_endian);
    const Result<Layout> layout = read_records(file);
    ASSERT_TRUE(layout.ok()) << layout.status().to_string();
    EXPECT_TRUE(validate_layout(*layout, file.size()).ok());
    EXPECT_EQ(layout->format, "fortran");
    ASSERT_EQ(layout->variables.size(), 2U);
    EXPECT_EQ(bytes_at(file, *find_variable(*layout, "/record1")), "head");
    EXPECT_EQ(bytes_at(file, *find_variable(*layout, "/record3")), std::string(1000, 'a'));
    EXPECT_EQ(find_variable(*layout, "/record3")->type.name(), "BYTES");
  }
}

TEST(FortranReader, JoinsThePartsOfALargeRecord) {
  const std::string file = fortran_record("head") + record_length(-3) + "abc" + record_length(3) + record_length(-3) +
                           "def" + record_length(-3) + record_length(2) + "gh" + record_length(-2) +
                           fortran_record("tail");
  const Result<Layout> layout = read_records(file);
  ASSERT_TRUE(layout.ok()) << layout.status().to_string();
  EXPECT_EQ(bytes_at(file, *find_variable(*layout, "/record2")), "abcdefgh");
  EXPECT_EQ(find_variable(*layout, "/record2")->shape, std::vector<uint64_t>{8});
  EXPECT_EQ(bytes_at(file, *find_variable(*layout, "/record3")), "tail");
}

TEST(FortranReader, TakesManyRecordsOfOneLengthForTheRowsOfAnArray) {
  std::string file = fortran_record("head"), rows;
  for (char row = 0; row < 40; ++row) {
    file += fortran_record(std::string(80, row));
    rows += std::string(80, row);
  }
  for (char field = 0; field < 3; ++field) file += fortran_record(std::string(500, field));
  const Result<Layout> layout = read_records(file);
  ASSERT_TRUE(layout.ok());
  EXPECT_TRUE(validate_layout(*layout, file.size()).ok());
  ASSERT_EQ(layout->variables.size(), 5U);
  const Variable& array = *find_variable(*layout, "/record2");
  EXPECT_EQ(array.shape, (std::vector<uint64_t>{40, 80}));
  EXPECT_EQ(array.run_shape, (std::vector<uint64_t>{80}));
  EXPECT_EQ(bytes_at(file, array), rows);
  EXPECT_NE(find_variable(*layout, "/record43"), nullptr) << "a few of one length may be different things";
}

TEST(FortranReader, TakesRecordsByTheirLengthIfThereAreVeryMany) {
  std::string file;
  for (int step = 0; step < 2000; ++step) file += fortran_record("time") + fortran_record(std::string(100, 'f'));
  const Result<Layout> layout = read_records(file);
  ASSERT_TRUE(layout.ok());
  EXPECT_TRUE(validate_layout(*layout, file.size()).ok());
  ASSERT_EQ(layout->variables.size(), 2U);
  EXPECT_EQ(find_variable(*layout, "/record2")->shape, (std::vector<uint64_t>{2000, 100}));
}

TEST(FortranReader, RecognisesNothingElse) {
  const std::string whole = fortran_record("head") + fortran_record(std::string(300, 'a')) + fortran_record("tail");
  ASSERT_TRUE(recognises(whole));
  for (size_t size = 0; size < whole.size(); ++size) {
    const bool whole_records = size == 12 || size == 12 + 308;
    EXPECT_EQ(recognises(whole.substr(0, size)), whole_records) << size;
  }
  EXPECT_FALSE(recognises(whole + "x"));
  EXPECT_FALSE(recognises(std::string(5000, '\0')));
  EXPECT_FALSE(recognises(std::string(5000, '\xff')));
  EXPECT_FALSE(recognises(record_length(INT32_MIN) + record_length(INT32_MIN)));
  EXPECT_FALSE(recognises(record_length(-4) + "abcd" + record_length(4))) << "a part without a next one";
  EXPECT_FALSE(recognises(record_length(4) + "abcd" + record_length(-4)));
  EXPECT_FALSE(recognises(fortran_record("head") + fortran_record("mixed", true)));
}

TEST(FortranReader, RecognisesNoFileOfAnotherFormat) {
  TemporaryDirectory directory;
  zoo::make_zoo(directory.path(), {.tiny_variables = 50, .huge_file_bytes = 0});
  size_t looked_at = 0;
  for (const auto& path : files_below(directory.path())) {
    if (path.string().find("/fortran/") != std::string::npos) continue;
    EXPECT_FALSE(recognises(read_text(path))) << path;
    ++looked_at;
  }
  EXPECT_GT(looked_at, 20U);
}

TEST(FortranReader, IsDoneSoonWithVeryManyRecords) {
  std::string file;
  for (int i = 0; i < 600'000; ++i) file += fortran_record("a");
  EXPECT_FALSE(recognises(file));
}

}  // namespace
}  // namespace varve
