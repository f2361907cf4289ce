#include "engine/diff.h"

#include <gtest/gtest.h>

#include "core/memory_file_system.h"
#include "engine/source.h"
#include "sets/saving.h"

namespace varve {
namespace {

struct FolderMatching : testing::Test {
  FolderMatching() {
    test::write_file(folder / "sub/a", test::random_bytes(50'000, 1));
    test::write_file(folder / "b", test::random_bytes(20'000, 2));
    std::filesystem::create_symlink("b", folder / "link");
    EXPECT_TRUE(test::save(*store, folder.path(), "run", 1).ok());
    record = Catalog(*store).read({"run", 1}).value();
  }
  std::vector<SourceFile> files() const { return scan_source_tree(folder.path(), null_progress()).value(); }
  FolderMatch match() const { return match_folder(*store, record, files()).value(); }
  StatusCode check() const {
    const std::vector<SourceFile> found = files();
    SourceReader reader(folder.path(), found);
    return check_saved(*store, record, reader).code();
  }

  MemoryFileSystem fs;
  std::unique_ptr<Store> store = test::make_store(fs);
  test::TempFolder folder;
  SetRecord record;
};

TEST_F(FolderMatching, KnowsTheFolderThatWasSaved) {
  EXPECT_EQ(match(), FolderMatch::whole);
  EXPECT_EQ(check(), StatusCode::ok);
}

TEST_F(FolderMatching, KnowsWhatIsLeftOfIt) {
  std::filesystem::remove(folder / "sub/a");
  EXPECT_EQ(match(), FolderMatch::part);
  EXPECT_EQ(check(), StatusCode::ok);
}

TEST_F(FolderMatching, NoticesFilesThatAreNewOrOtherwise) {
  test::write_file(folder / "c", "more");
  EXPECT_EQ(match(), FolderMatch::differs);
  EXPECT_EQ(check(), StatusCode::corrupt);
  std::filesystem::remove(folder / "c");
  EXPECT_EQ(match(), FolderMatch::whole);
  std::filesystem::permissions(folder / "b", std::filesystem::perms::owner_read);
  EXPECT_EQ(match(), FolderMatch::differs);
}

TEST_F(FolderMatching, NoticesBytesThatDifferUnderTheSameFacts) {
  const auto time = std::filesystem::last_write_time(folder / "b");
  ByteVector bytes = test::random_bytes(20'000, 2);
  bytes[19'999] ^= std::byte{1};
  test::write_file(folder / "b", bytes);
  std::filesystem::last_write_time(folder / "b", time);
  EXPECT_EQ(match(), FolderMatch::whole);
  EXPECT_EQ(check(), StatusCode::corrupt);
}

}  // namespace
}  // namespace varve
