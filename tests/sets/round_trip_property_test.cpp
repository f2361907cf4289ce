// Random files with random layouts, saved with random options.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <fmt/format.h>

#include "core/memory_file_system.h"
#include "sets/round_trip.h"

namespace varve {
namespace {

using test::TempFolder;

const std::vector<std::string> kTypes = {"u8",  "i16",   "i16be", "i32", "f32", "f32be",
                                         "f64", "f64be", "u64be", "T80", "O12", "BYTES"};

/// A file, and the description of a layout that it might have.
struct DescribedFile {
  ByteVector contents;
  std::string description;
};

DescribedFile arbitrary_file() {
  std::string members;
  uint64_t offset = *rc::gen::inRange<uint64_t>(0, 200);
  const auto variable_count = *rc::gen::inRange<size_t>(0, 12);
  for (size_t i = 0; i < variable_count; ++i) {
    const std::string type = *rc::gen::elementOf(kTypes);
    const auto dimensions = *rc::gen::inRange<size_t>(0, 4);
    std::string shape;
    uint64_t elements = 1;
    for (size_t d = 0; d < dimensions; ++d) {
      const uint64_t length = *rc::gen::inRange<uint64_t>(1, d == 0 ? 400 : 12);
      shape += fmt::format("{}{}", d == 0 ? "" : ", ", length);
      elements *= length;
    }
    members += fmt::format("{}{{ \"name\": \"/Group{}/Variable\", \"type\": \"{}\", \"shape\": [{}], \"offset\": {} }}",
                           i == 0 ? "" : ",\n", i, type, shape, offset);
    offset += elements * ElementType::parse(type).value().bytes;
    // Mostly right after one another, sometimes with something in between.
    offset +=
        *rc::gen::weightedOneOf<uint64_t>({{3, rc::gen::just<uint64_t>(0)}, {1, rc::gen::inRange<uint64_t>(1, 300)}});
  }
  offset += *rc::gen::inRange<uint64_t>(0, 100);
  const auto seed = *rc::gen::inRange<uint64_t>(0, 1000);
  DescribedFile file;
  file.contents = *rc::gen::element(0, 1, 2) == 0 ? ByteVector(offset, static_cast<std::byte>(seed))
                                                  : test::smooth_field(offset / 8 + 1, seed);
  file.contents.resize(offset);
  file.description = "{ \"variables\": [" + members + "] }";
  return file;
}

SaveOptions arbitrary_options(uint64_t step) {
  test::Way way;
  way.scheme = *rc::gen::elementOf(test::kSchemes);
  way.codec = *rc::gen::element<std::string>("balanced", "fast", "paper", "store", "lorenzo+shuffle+zstd:1",
                                             "lorenzo+magnitudes", "fpc+zstd", "delta+zstd");
  way.chunker =
      *rc::gen::element<std::string>("fixed:64", "fixed:1000", "fixed:8192", "gear:256", "gear:4096", "rabin:512");
  SaveOptions options = test::options_of(way, "job", step);
  options.ranks.group_size = *rc::gen::inRange<uint32_t>(1, 5);
  options.block_bytes = *rc::gen::inRange<uint64_t>(1, 100'000);
  options.pack_bytes = *rc::gen::inRange<uint64_t>(64_KiB, 256_KiB);
  options.variables.small_bytes = *rc::gen::inRange<uint64_t>(0, 1000);
  options.variables.match = MatchRule::parse(*rc::gen::element<std::string>("digits", "exact", "Group[0-9]")).value();
  options.thread_count = *rc::gen::inRange<uint32_t>(1, 4);
  return options;
}

/// Writes the files of a folder; `changed` bytes differ from the step before.
void write_folder(const std::string& folder, std::vector<DescribedFile>& files) {
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string path = fmt::format("{}/part{}/rank{}.dat", folder, i % 2, i);
    test::write_file(path, files[i].contents);
    test::write_file(path + ".varve-layout", files[i].description);
  }
}

RC_GTEST_PROP(RandomLayouts, ComeBackWithRandomOptions, ()) {
  std::vector<DescribedFile> files;
  const auto file_count = *rc::gen::inRange<size_t>(0, 7);
  for (size_t i = 0; i < file_count; ++i) files.push_back(arbitrary_file());
  MemoryFileSystem fs;
  const auto store = test::make_store(fs);
  const TempFolder folder;
  std::vector<test::Snapshot> snapshots;
  for (uint64_t step = 0; step < 3; ++step) {
    write_folder(folder.path(), files);
    snapshots.push_back(test::snapshot_of(folder.path()));
    const Result<SaveReport> saved =
        save_folder(*store, folder.path(), arbitrary_options(step), test::layout_service());
    if (!saved.ok()) RC_FAIL(saved.status().to_string());
    for (DescribedFile& file : files) {
      for (uint64_t i = *rc::gen::inRange<uint64_t>(0, 4); i > 0 && !file.contents.empty(); --i) {
        file.contents[*rc::gen::inRange<size_t>(0, file.contents.size())] ^= std::byte{0x55};
      }
    }
  }
  for (uint64_t step = 0; step < 3; ++step) {
    const testing::AssertionResult same = test::restores_as(*store, {"job", step}, snapshots[step]);
    if (!same) RC_FAIL(same.message());
  }
  const testing::AssertionResult whole = test::is_whole(*store);
  if (!whole) RC_FAIL(whole.message());
}

}  // namespace
}  // namespace varve
