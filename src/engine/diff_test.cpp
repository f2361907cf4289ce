#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <map>

#include "core/memory_file_system.h"
#include "engine/diff.h"
#include "engine/inspect.h"
#include "sets/saving.h"

namespace varve {
namespace {

using test::TempFolder;

template <class Number>
ByteVector bytes_of(const std::vector<Number>& numbers) {
  ByteVector bytes(numbers.size() * sizeof(Number));
  for (size_t i = 0; i < numbers.size(); ++i) store_le<Number>(bytes.data() + i * sizeof(Number), numbers[i]);
  return bytes;
}

struct Diff : testing::Test {
  MemoryFileSystem fs;
  std::unique_ptr<Store> store = test::make_store(fs);
  TempFolder folder;

  /// Saves one file of numbers, all of it one variable.
  void save(uint64_t step, const ByteVector& bytes, const std::string& type) {
    test::write_file(folder / "x", bytes);
    SaveOptions options = test::save_options("run", step);
    options.variables.layouts.raw = RawDescription{ElementType::parse(type).value(), {}};
    const Result<SaveReport> saved = save_folder(*store, folder.path(), options, test::layout_service());
    ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  }
  void save_as(uint64_t step, Scheme scheme) {
    SaveOptions options = test::save_options("run", step);
    options.scheme = scheme;
    const Result<SaveReport> saved = save_folder(*store, folder.path(), options, test::layout_service());
    ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  }
  SetDifference diff() { return diff_sets(*store, {"run", 1}, {"run", 2}).value(); }
  VariableChange only_change() {
    const SetDifference difference = diff();
    EXPECT_EQ(difference.changes.size(), 1u);
    return difference.changes.empty() ? VariableChange{} : difference.changes[0];
  }
};

TEST_F(Diff, GivesShrinkageAsAShareOfWhatThereWas) {
  save(1, bytes_of(std::vector<double>(1000, 1.0)), "f64");
  save(2, bytes_of(std::vector<double>(10, 1.0)), "f64");
  const VariableChange change = only_change();
  EXPECT_EQ(change.kind, ChangeKind::changed);
  EXPECT_EQ(change.old_bytes, 8000u);
  EXPECT_EQ(change.new_bytes, 80u);
  EXPECT_EQ(change.changed_bytes, 7920u);
  EXPECT_EQ(diff().bytes, 8000u);
  EXPECT_FALSE(change.difference_max.has_value());
}

TEST_F(Diff, NeverFindsMoreChangedThanThereIs) {
  const size_t counts[] = {1000, 0, 10, 2000, 3};
  for (uint64_t step = 1; step <= std::size(counts); ++step)
    save(step, bytes_of(std::vector<double>(counts[step - 1], 1.0 + static_cast<double>(step))), "f64");
  for (uint64_t step = 2; step <= std::size(counts); ++step) {
    const SetDifference difference = diff_sets(*store, {"run", step - 1}, {"run", step}).value();
    EXPECT_EQ(difference.bytes, 8 * std::max(counts[step - 2], counts[step - 1]));
    EXPECT_LE(difference.changed_bytes, difference.bytes);
    EXPECT_GT(difference.changed_bytes, 0u);
  }
}

TEST_F(Diff, ShowsLinksThatLeadElsewhereAndFoldersThatCameOrWent) {
  const std::filesystem::path root = folder.path();
  std::filesystem::create_directories(root / "gone");
  std::filesystem::create_directories(root / "step1");
  std::filesystem::create_symlink("x", root / "latest");
  std::filesystem::create_symlink("x", root / "same");
  save(1, bytes_of(std::vector<double>(10, 1.0)), "f64");
  std::filesystem::remove(root / "gone");
  std::filesystem::rename(root / "step1", root / "step2");
  std::filesystem::remove(root / "latest");
  std::filesystem::create_symlink("other", root / "latest");
  std::filesystem::create_symlink("x", root / "more");
  save(2, bytes_of(std::vector<double>(10, 1.0)), "f64");
  std::map<std::string, ChangeKind> changes;
  for (const VariableChange& change : diff().changes) {
    EXPECT_TRUE(change.whole_file);
    changes[change.file] = change.kind;
  }
  EXPECT_EQ(changes, (std::map<std::string, ChangeKind>{
                         {"gone", ChangeKind::removed}, {"latest", ChangeKind::changed}, {"more", ChangeKind::added}}));
}

TEST_F(Diff, ShowsAnEmptiedFileAsChanged) {
  save(1, bytes_of(std::vector<double>(1000, 1.0)), "f64");
  save(2, {}, "f64");
  const VariableChange change = only_change();
  EXPECT_EQ(change.kind, ChangeKind::changed);
  EXPECT_TRUE(change.whole_file);
  EXPECT_EQ(change.old_bytes, 8000u);
  EXPECT_EQ(change.new_bytes, 0u);
  EXPECT_EQ(change.changed_bytes, 8000u);
}

TEST_F(Diff, SaysWhereADifferenceIsNotFinite) {
  std::vector<double> numbers(1000, 1.0);
  save(1, bytes_of(numbers), "f64");
  numbers[7] = 5.0;
  numbers[500] = std::nan("");
  save(2, bytes_of(numbers), "f64");
  const VariableChange change = only_change();
  EXPECT_EQ(change.changed_bytes, 16u);
  EXPECT_TRUE(std::isnan(change.difference_max.value()));
  EXPECT_TRUE(std::isnan(change.difference_rms.value()));
}

TEST_F(Diff, LosesNoDigitOfLargeIntegers) {
  std::vector<int64_t> numbers(1000, int64_t{1} << 60);
  save(1, bytes_of(numbers), "i64");
  numbers[3] += 1;
  save(2, bytes_of(numbers), "i64");
  EXPECT_EQ(only_change().difference_max.value(), 1.0);
  EXPECT_NEAR(only_change().difference_rms.value(), std::sqrt(1.0 / 1000), 1e-12);
}

TEST_F(Diff, FindsNoDifferenceWhereTheSameBytesWereTakenApartDifferently) {
  ByteVector bytes(16, std::byte{'h'});
  for (uint64_t seed : {1u, 2u}) {
    const ByteVector field = test::smooth_field(200'000, seed);
    bytes.insert(bytes.end(), field.begin(), field.end());
  }
  const ByteVector pattern(500'000, std::byte{7});
  bytes.insert(bytes.end(), pattern.begin(), pattern.end());
  test::write_file(folder / "x", bytes);
  test::write_file(folder / "x.varve-layout",
                   R"({ "variables": [ { "name": "/b", "type": "f64", "shape": [200000], "offset": 1600016 },
                                       { "name": "/a", "type": "f64", "shape": [200000], "offset": 16 } ] })");
  save_as(1, Scheme::agnostic);
  save_as(2, Scheme::aware);
  EXPECT_TRUE(diff().changes.empty());
  EXPECT_EQ(diff().changed_bytes, 0u);
  EXPECT_EQ(diff_sets(*store, {"run", 2}, {"run", 1}).value().changed_bytes, 0u);

  bytes[3'000'000] ^= std::byte{1};
  test::write_file(folder / "x", bytes);
  save_as(2 + 1, Scheme::aware);
  const SetDifference difference = diff_sets(*store, {"run", 1}, {"run", 3}).value();
  ASSERT_EQ(difference.changes.size(), 1u);
  EXPECT_TRUE(difference.changes[0].whole_file);
  EXPECT_EQ(difference.changes[0].changed_bytes, 1u);
  EXPECT_EQ(difference.bytes, diff().bytes);
}

TEST(ElementDifferences, OfIntegersReachFromEndToEnd) {
  auto largest = [](const char* type, const ByteVector& a, const ByteVector& b) {
    ElementDifference difference(ElementType::parse(type).value());
    difference.add(a.data(), b.data());
    return difference.largest();
  };
  using Signed = std::numeric_limits<int64_t>;
  const ByteVector low = bytes_of<int64_t>({Signed::min()}), high = bytes_of<int64_t>({Signed::max()});
  EXPECT_EQ(largest("i64", low, high), 0x1p64);
  EXPECT_EQ(largest("i64", high, low), 0x1p64);
  EXPECT_EQ(largest("u64", bytes_of<uint64_t>({0}), bytes_of<uint64_t>({UINT64_MAX})), 0x1p64);
  EXPECT_EQ(largest("i8", bytes_of<int8_t>({-128}), bytes_of<int8_t>({127})), 255.0);
  EXPECT_EQ(largest("u8", bytes_of<uint8_t>({3}), bytes_of<uint8_t>({1})), 2.0);
  EXPECT_EQ(largest("i16be", {std::byte{1}, std::byte{0}}, {std::byte{0}, std::byte{1}}), 255.0);
}

TEST(ElementDifferences, OfFloatingNumbersAreFiniteWhereTheyCanBe) {
  ElementDifference difference(ElementType::parse("f64").value());
  const ByteVector zero = bytes_of<double>({0}), huge = bytes_of<double>({1e300}),
                   lowest = bytes_of<double>({-1.7e308}), highest = bytes_of<double>({1.7e308});
  difference.add(zero.data(), huge.data());
  EXPECT_EQ(difference.largest(), 1e300);
  EXPECT_NEAR(difference.rms(4) / 1e300, 0.5, 1e-12);
  difference.add(lowest.data(), highest.data());
  EXPECT_TRUE(std::isnan(difference.largest()));
  EXPECT_TRUE(std::isnan(difference.rms(4)));
}

}  // namespace
}  // namespace varve
