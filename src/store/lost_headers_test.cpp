#include "store/lost_headers.h"

#include <gtest/gtest.h>

#include "backend/folder_backend.h"
#include "core/memory_file_system.h"
#include "format/store_header.h"
#include "store/spread.h"
#include "store/test_sets.h"

namespace varve {
namespace {

class AStoreHeader : public testing::Test {
 protected:
  AStoreHeader() {
    EXPECT_TRUE(Store::create(fs, "/s", {.algorithm = ScoreAlgorithm::sha256, .score_bytes = 20}).ok());
    header = read_file(fs, "/s/varve.store", 4096).value();
  }
  void save() { ASSERT_TRUE(test::save_numbers(*Store::open(fs, "/s").value(), {"job", 1}, {1, 2}).ok()); }
  void damage() {
    ByteVector damaged = header;
    damaged[20] ^= std::byte{1};
    ASSERT_TRUE(write_file_durably(fs, "/s/varve.store", damaged).ok());
  }
  Result<std::vector<std::string>> restore() { return restore_store_headers({&folder}); }

  MemoryFileSystem fs;
  FolderBackend folder{fs, "/s"};
  ByteVector header;
};

TEST_F(AStoreHeader, IsMadeAnewOfWhatTheArenasSay) {
  save();
  for (const bool is_lost : {true, false}) {
    if (is_lost) {
      ASSERT_TRUE(fs.remove("/s/varve.store").ok());
    } else {
      damage();
    }
    const Status failed = Store::open(fs, "/s").status();
    EXPECT_EQ(failed.code(), StatusCode::corrupt);
    EXPECT_EQ(failed.remedy(), Remedy::rebuild_header) << failed.to_string();
    const auto made = restore();
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    EXPECT_EQ(*made, std::vector<std::string>{"/s/varve.store"});
    EXPECT_EQ(read_file(fs, "/s/varve.store", 4096).value(), header);
  }
  EXPECT_TRUE(restore()->empty()) << "it is there";
}

TEST_F(AStoreHeader, IsNotMadeUp) {
  ASSERT_TRUE(fs.remove("/s/varve.store").ok());
  EXPECT_EQ(restore().status().code(), StatusCode::not_found) << "there is no store";
  FolderBackend none(fs, "/none");
  EXPECT_EQ(restore_store_headers({&none}).status().code(), StatusCode::not_found);
  ASSERT_TRUE(write_file_durably(fs, "/s/varve.store", header).ok());
  damage();
  EXPECT_EQ(restore().status().code(), StatusCode::corrupt) << "no arena says what it was";
  EXPECT_TRUE(fs.stat("/s/varve.store").ok());
}

TEST_F(AStoreHeader, IsNotTakenFromAnArenaThatStraysFromAnotherStore) {
  save();
  MemoryFileSystem other_fs;
  ASSERT_TRUE(Store::create(other_fs, "/s").ok());
  const auto other = Store::open(other_fs, "/s").value();
  ASSERT_TRUE(test::save_numbers(*other, {"job", 1}, {7}).ok());
  const std::string stray = other->arena_path(other->list_arenas()->front());
  ASSERT_TRUE(write_file_durably(fs, stray, read_file(other_fs, stray, 64_MiB).value()).ok());
  ASSERT_TRUE(fs.remove("/s/varve.store").ok());
  EXPECT_EQ(restore().status().code(), StatusCode::corrupt) << "one against one";
  ASSERT_TRUE(write_file_durably(fs, "/s/varve.store", header).ok());
  ASSERT_TRUE(test::save_numbers(*Store::open(fs, "/s").value(), {"job", 2}, {3, 4}).ok());
  ASSERT_TRUE(fs.remove("/s/varve.store").ok());
  ASSERT_TRUE(restore().ok());
  EXPECT_EQ(read_file(fs, "/s/varve.store", 4096).value(), header);
}

TEST(StoreHeaders, OfAStoreOverSeveralPlacesAreMadeAnew) {
  MemoryFileSystem fs;
  FolderBackend a(fs, "/a"), b(fs, "/b"), c(fs, "/c");
  const std::vector<Backend*> places{&a, &b, &c};
  ASSERT_TRUE(create_spread_store(places).ok());
  const ByteVector header = read_file(fs, "/a/varve.store", 4096).value();
  ASSERT_TRUE(fs.remove("/a/varve.store").ok());
  ASSERT_TRUE(fs.remove("/c/varve.store").ok());
  EXPECT_EQ(restore_store_headers(places).value(), (std::vector<std::string>{"/a/varve.store", "/c/varve.store"}));
  for (const char* path : {"/a", "/b", "/c"})
    EXPECT_EQ(read_file(fs, store_header_path(path), 4096).value(), header) << path;
  SpreadBackend spread(places);
  {
    const auto store = Store::open(spread, nullptr, spread.spread());
    ASSERT_TRUE(store.ok()) << store.status().to_string();
    ASSERT_TRUE(test::save_numbers(**store, {"job", 1}, {1, 2, 3}).ok());
  }
  for (const char* path : {"/a", "/b", "/c"}) ASSERT_TRUE(fs.remove(store_header_path(path)).ok());
  EXPECT_EQ(restore_store_headers(places)->size(), 3u);
  EXPECT_EQ(read_file(fs, "/b/varve.store", 4096).value(), header);
}

}  // namespace
}  // namespace varve
