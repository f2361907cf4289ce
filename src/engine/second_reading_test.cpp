#include "engine/second_reading.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "engine/folder_source.h"
#include "sets/saving.h"

namespace varve {
namespace {

using test::TempFolder;

constexpr size_t kPage = 4096;

/// A file of pages, of which the first half is a hole, as a program has it that has mapped it long ago, and closed it.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    const UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    EXPECT_EQ(::ftruncate(file.get(), 64 * kPage), 0);
    void* const mapped = ::mmap(nullptr, 64 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    EXPECT_NE(mapped, MAP_FAILED);
    pages_ = static_cast<volatile char*>(mapped);
    for (size_t page = 32; page < 64; ++page) set(page, 'a');
  }
  ~MappedFile() { ::munmap(const_cast<char*>(pages_), 64 * kPage); }
  void set(size_t page, char value) { pages_[page * kPage] = value; }
  void set_byte(size_t at, char value) { pages_[at] = value; }
  char get(size_t page) const { return pages_[page * kPage]; }

 private:
  volatile char* pages_;
};

/// On one file system, at the moment between what a save reads and its look whether that has changed.
struct OnAFileSystem : testing::TestWithParam<const char*> {
  void SetUp() override {
    const std::string kind = GetParam();
    if (kind == "disk") return;
    std::string options = "size=16m";
    if (kind == "overlay") {
      for (const char* name : {"below", "above", "work"}) std::filesystem::create_directory(place / name);
      options = "lowerdir=" + place / "below" + ",upperdir=" + place / "above" + ",workdir=" + place / "work";
    }
    std::filesystem::create_directory(place / "mounted");
    is_mounted = ::mount("none", (place / "mounted").c_str(), kind.c_str(), 0, options.c_str()) == 0;
    if (!is_mounted) GTEST_SKIP() << "may not mount a file system of this kind";
  }
  void TearDown() override {
    if (!is_mounted) return;
    // A reader process that was forked meanwhile has the mapping, too.
    EXPECT_EQ(::umount2((place / "mounted").c_str(), MNT_DETACH), 0);
  }
  std::string make_folder() const {
    const std::string folder = is_mounted ? place / "mounted/run" : place / "run";
    std::filesystem::create_directory(folder);
    return folder;
  }
  /// What check_unchanged() says after all was read and `change` was done; twice, as it is asked by several.
  StatusCode after(const std::function<void(MappedFile&)>& change) {
    const std::string folder = make_folder();
    MappedFile mapped(folder + "/file");
    mapped.set(0, 0);
    const auto files = scan_source_tree(folder, null_progress()).value();
    let_times_pass(files);
    FolderSource source(folder, files, test::layout_service(), {});
    for (uint64_t at = 0; at < files[0].bytes;) {
      const uint64_t hole = source.hole_bytes(0, at, files[0].bytes - at).value();
      ByteVector part(hole > 0 ? 0 : 8 * kPage);
      EXPECT_TRUE(source.read(0, at, part).ok());
      at += hole + part.size();
    }
    change(mapped);
    const StatusCode first = source.check_unchanged().code();
    EXPECT_EQ(source.check_unchanged().code(), first);
    return first;
  }

  TempFolder place{TempFolder::Where::disk};
  bool is_mounted = false;
};

TEST_P(OnAFileSystem, AWriteThroughAnOldMappingIsNoticed) {
  EXPECT_EQ(after([](MappedFile& file) { file.set(63, 'b'); }), StatusCode::busy);
  EXPECT_EQ(after([](MappedFile& file) { file.set(32, 'b'); }), StatusCode::busy);
}

TEST_P(OnAFileSystem, AWriteIntoAHoleIsNoticed) {
  EXPECT_EQ(after([](MappedFile& file) { file.set(17, 'b'); }), StatusCode::busy);
}

TEST_P(OnAFileSystem, AMappedFileThatNobodyWritesToIsUnchanged) {
  EXPECT_EQ(after([](MappedFile&) {}), StatusCode::ok);
}

TEST_P(OnAFileSystem, LookingAtAHoleDoesNotChangeAFile) {
  EXPECT_EQ(after([](MappedFile& file) { EXPECT_EQ(file.get(17), 0); }), StatusCode::ok);
}

TEST_P(OnAFileSystem, ALayoutOfAnotherStateThanTheBytesIsNoticed) {
  using namespace std::string_view_literals;
  for (const bool changes : {true, false}) {
    const std::string folder = make_folder();
    MappedFile mapped(folder + "/file.npy");
    const std::string_view head = "\x93NUMPY\1\0v\0{'descr': '<f8', 'fortran_order': False, 'shape': (4, 8188), }"sv;
    for (size_t i = 0; i < 128; ++i) mapped.set_byte(i, i < head.size() ? head[i] : i == 127 ? '\n' : ' ');
    const size_t order_at = head.find('<');
    const auto files = scan_source_tree(folder, null_progress()).value();
    let_times_pass(files);
    FolderSource source(folder, files, test::layout_service(), {});
    ASSERT_EQ(source.layouts(null_progress()).value()[0].format, "npy");
    if (changes) mapped.set_byte(order_at, '>');
    ByteVector bytes(files[0].bytes);
    EXPECT_TRUE(source.read(0, 0, bytes).ok());
    EXPECT_EQ(source.check_unchanged().code(), changes ? StatusCode::busy : StatusCode::ok);
    EXPECT_EQ(source.check_unchanged().code(), changes ? StatusCode::busy : StatusCode::ok);
  }
}

INSTANTIATE_TEST_SUITE_P(All, OnAFileSystem, testing::Values("disk", "tmpfs", "ramfs", "overlay"),
                         [](const auto& kind) { return std::string(kind.param); });

TEST(ASecondReading, ReadsAgainWhatWasReadSinceItWasAskedLast) {
  const TempFolder place;
  const std::string path = place / "file";
  ByteVector bytes = test::random_bytes(100'000, 1);
  test::write_file(path, bytes);
  const UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  SecondReading reading;
  ByteVector buffer(10'000);
  reading.add(50'000, ByteSpan(bytes).subspan(50'000, 10'000));
  reading.add(60'000, ByteSpan(bytes).subspan(60'000, 40'000));
  reading.add(0, ByteSpan(bytes).first(50'000));
  EXPECT_TRUE(reading.is_the_same(file.get(), path, buffer).value());
  const char other = static_cast<char>(~std::to_integer<int>(bytes[70'000]));
  ASSERT_EQ(::pwrite(file.get(), &other, 1, 70'000), 1);
  EXPECT_TRUE(reading.is_the_same(file.get(), path, buffer).value()) << "it was one state of the file";
  reading.add(0, ByteSpan(bytes).first(1));
  EXPECT_FALSE(reading.is_the_same(file.get(), path, buffer).value()) << "and with what was read now it is not";
  ASSERT_EQ(::ftruncate(file.get(), 70'000), 0);
  EXPECT_FALSE(reading.is_the_same(file.get(), path, buffer).value());
}

}  // namespace
}  // namespace varve
