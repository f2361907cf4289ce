// What a server that is one of several knows, and from whom.

#include "serve/chunk_service.h"

#include <filesystem>
#include <functional>
#include <thread>

#include "backend/folder_backend.h"
#include "serve/test_server.h"
#include "store/spread.h"
#include "store/test_sets.h"

namespace varve {
namespace {

constexpr uint64_t kMemoryBytes = 1_MiB;

/// Two servers, and a client of the store over both, which writes all through the servers.
struct ServersOfOneStore : testing::Test {
  struct Reached {
    Reached()
        : server(TestServer::Kind::unix_socket, is_store_path),
          link(server.connect(false)),
          fs(*link),
          backend(fs, fs.root()),
          chunks(*link) {}
    size_t run_count() const {
      size_t runs = 0;
      std::error_code none;
      for (const auto& entry : std::filesystem::directory_iterator(server.options.folder + "/index", none))
        runs += entry.path().extension() == ".run" ? 1 : 0;
      return runs;
    }
    TestServer server;
    std::unique_ptr<ServerLink> link;
    RemoteFileSystem fs;
    FolderBackend backend;
    RemoteChunkLookup chunks;
  };

  ServersOfOneStore() {
    EXPECT_TRUE(create_spread_store(places()).ok());
    spread = std::make_unique<SpreadBackend>(order_places(places()).value());
    lookup = std::make_unique<SpreadChunkLookup>(std::vector<ChunkLookup*>{&servers[0].chunks, &servers[1].chunks});
    store = Store::open(*spread, lookup.get(), spread->spread()).value();
  }
  std::vector<Backend*> places() { return {&servers[0].backend, &servers[1].backend}; }
  uint64_t prefix_of(uint64_t number) const { return store->score()(test::numbered_chunk(number)).prefix(); }
  /// Whether one server says that it may have the chunk.
  static bool knows(Reached& server, uint64_t prefix) {
    uint32_t count = 0;
    std::vector<ChunkCandidate> candidates;
    EXPECT_TRUE(server.chunks.find({&prefix, 1}, {&count, 1}, candidates).ok());
    return count > 0;
  }
  bool finds(uint64_t number) const {
    const auto index = ChunkIndex::open(*store, {}, kMemoryBytes).value();
    ChunkIndex::Cursor cursor(*index);
    const uint64_t prefix = prefix_of(number);
    EXPECT_TRUE(cursor.prefetch({&prefix, 1}).ok());
    return cursor.find(store->score()(test::numbered_chunk(number)), test::kNumberedChunkBytes).has_value();
  }

  Reached servers[2];
  std::unique_ptr<SpreadBackend> spread;
  std::unique_ptr<SpreadChunkLookup> lookup;
  std::unique_ptr<Store> store;
};

TEST_F(ServersOfOneStore, KnowTheChunksOfTheirRangesWhereverThePacksAre) {
  const auto numbers = test::numbers_between(1, 200);
  ASSERT_TRUE(test::save_numbers(*store, {"job", 1}, numbers).ok());  // into one arena
  ASSERT_TRUE(ChunkIndex::complete(*store, kMemoryBytes).ok());
  uint32_t known[2] = {0, 0};
  for (const uint64_t number : numbers) {
    const uint64_t prefix = prefix_of(number);
    const uint32_t home = store->spread().place_of_prefix(prefix);
    EXPECT_TRUE(knows(servers[home], prefix)) << number;
    EXPECT_FALSE(knows(servers[1 - home], prefix)) << number;
    ++known[home];
  }
  EXPECT_GT(known[0], 50u);
  EXPECT_GT(known[1], 50u);
  for (uint64_t number = 1; number <= 210; number += 10) EXPECT_EQ(finds(number), number <= 200) << number;
}

TEST_F(ServersOfOneStore, MergeTheRunsThatClientsBring) {
  for (uint64_t set = 0; set < 30; ++set) {
    ASSERT_TRUE(test::save_numbers(*store, {"job", set}, test::numbers_between(10 * set + 1, 10 * set + 10)).ok());
    ASSERT_TRUE(ChunkIndex::complete(*store, kMemoryBytes).ok());
  }
  for (Reached& server : servers) {
    for (int wait = 0; wait < 1000 && server.run_count() > 9; ++wait) {
      knows(server, 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_LE(server.run_count(), 9u);
  }
  for (uint64_t number = 1; number <= 300; number += 7) EXPECT_TRUE(finds(number)) << number;
}

TEST_F(ServersOfOneStore, GetBackWhatTheyLost) {
  ASSERT_TRUE(test::save_numbers(*store, {"job", 1}, test::numbers_between(1, 50)).ok());
  ASSERT_TRUE(ChunkIndex::complete(*store, kMemoryBytes).ok());
  for (Reached& lost : servers) {
    lost.server.stop();
    std::filesystem::remove_all(lost.server.options.folder + "/index");
    lost.server.start();
    for (uint64_t number = 1; number <= 50; ++number) EXPECT_TRUE(finds(number)) << number;
  }
}

TEST_F(ServersOfOneStore, LetNobodyWriteToARunThatHasItsName) {
  const std::string folder = servers[0].fs.root() + "/index/";
  FileSystem& there = servers[0].fs;
  FolderBackend backend(there, servers[0].fs.root());
  const std::string path = folder + UniqueId::random()->hex() + ".run", unfinished = path + ".part";
  EXPECT_EQ(there.create(path).status().code(), StatusCode::permission_denied);
  auto written = there.create(unfinished).value();
  EXPECT_EQ(there.rename(unfinished, path).code(), StatusCode::busy);
  written.reset();
  ASSERT_TRUE(there.remove(unfinished).ok());
  // A whole one, since the server takes away what is none.
  const RunTable table{{UniqueId::random().value()}, RunScope::of_place(0, 2), 0};
  ASSERT_TRUE(write_index_run(backend, path, store->id(), table, [] { return ChunkIndexEntry(); }).ok());
  EXPECT_EQ(there.rename(path, unfinished).code(), StatusCode::permission_denied);
  EXPECT_EQ(there.create(path).status().code(), StatusCode::permission_denied);
  EXPECT_TRUE(there.remove(path).ok());
}

}  // namespace
}  // namespace varve
