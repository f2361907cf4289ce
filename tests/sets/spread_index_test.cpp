// The index of a store over several places: who answers for which chunk, and that it heals.

#include <gtest/gtest.h>

#include <map>

#include "backend/folder_backend.h"
#include "core/memory_file_system.h"
#include "format/store_header.h"
#include "sets/saving.h"
#include "store/chunk_index.h"
#include "store/prune.h"
#include "store/spread.h"

namespace varve {
namespace {

const std::string kPath = "/store";
const std::string kIndex = kPath + "/index";

/// A place as its server has it: it sees its own folder, and nothing else. Remembers what it was asked.
class PlaceServer final : public ChunkLookup {
 public:
  Status find(std::span<const uint64_t> prefixes, std::span<uint32_t> counts,
              std::vector<ChunkCandidate>& candidates) override {
    asked.insert(prefixes.begin(), prefixes.end());
    ++questions;
    const IndexFolder runs = open();
    for (size_t i = 0; i < prefixes.size(); ++i) {
      const size_t before = candidates.size();
      runs.runs().find(prefixes[i], candidates);
      counts[i] = static_cast<uint32_t>(candidates.size() - before);
    }
    return {};
  }
  bool is_far() const override { return true; }
  bool keeps_index() const override { return true; }
  IndexFolder open() {
    IndexFolder runs(backend, kIndex, store(), {.scope = std::nullopt});
    EXPECT_TRUE(runs.list().ok());
    EXPECT_TRUE(runs.load(nullptr).ok());
    return runs;
  }
  void merge() {
    IndexFolder runs = open();
    while (runs.runs().merge_wanted()) ASSERT_TRUE(runs.merge(nullptr).ok());
  }
  std::vector<std::string> run_names() {
    std::vector<std::string> names;
    const auto entries = disk.list(kIndex);
    if (!entries.ok()) return names;
    for (const DirectoryEntry& entry : *entries) names.push_back(entry.name);
    std::sort(names.begin(), names.end());
    return names;
  }
  void lose_index() {
    for (const std::string& name : run_names()) ASSERT_TRUE(disk.remove(join_path(kIndex, name)).ok());
    ASSERT_TRUE(disk.remove_directory(kIndex).ok());
  }
  /// Writes a run that has all chunks of the arenas here: as was done when each server had the index of its own arenas.
  void index_own_arenas(const Store& store) {
    IndexFolder runs(backend, kIndex, this->store(), {});
    ASSERT_TRUE(runs.list().ok());
    std::vector<ArenaId> arenas;
    ChunkIndexEntries entries;
    for (const DirectoryEntry& file : disk.list(kPath + "/arenas").value()) {
      const auto arena = store.arena(ArenaId::parse(file.name.substr(0, 32)).value()).value();
      for (uint32_t pack = 0; pack < arena->index().packs.size(); ++pack) {
        const PackMeta meta = arena->read_pack_meta(pack).value();
        for (uint32_t chunk = 0; chunk < meta.chunks.size(); ++chunk)
          entries.push_back({meta.chunks[chunk].score.prefix(), static_cast<uint32_t>(arenas.size()), pack, chunk});
      }
      arenas.push_back(ArenaId::parse(file.name.substr(0, 32)).value());
    }
    std::sort(entries.begin(), entries.end());
    size_t at = 0;
    ASSERT_TRUE(runs.add(arenas, entries.size(), [&] { return entries[at++]; }).ok());
  }

  UniqueId store() {
    const std::string path = store_header_path(kPath);
    return decode_store_header(read_file(disk, path, 4096).value(), path).value().store;
  }

  MemoryFileSystem disk;
  FolderBackend backend{disk, kPath};
  std::set<uint64_t> asked;
  int questions = 0;
};

/// A client of all places.
struct Client {
  explicit Client(const std::vector<PlaceServer*>& servers)
      : places(order_places(places_of(servers)).value()),
        chunks(std::vector<ChunkLookup*>(servers.begin(), servers.end())),
        store(Store::open(places, &chunks, places.spread()).value()) {}
  static std::vector<Backend*> places_of(const std::vector<PlaceServer*>& servers) {
    std::vector<Backend*> places;
    for (PlaceServer* server : servers) places.push_back(&server->backend);
    return places;
  }
  SpreadBackend places;
  SpreadChunkLookup chunks;
  std::unique_ptr<Store> store;
};

struct SpreadIndex : testing::Test {
  void SetUp() override {
    for (int i = 0; text.size() < 3'000'000; ++i) text += std::to_string(int64_t{i} * 7919) + ",";
    test::write_file(folder.path() + "/rank0.dat", text);
    test::write_file(folder.path() + "/rank1.dat", text.substr(500'000));
  }

  /// A store over so many places.
  void make(size_t count) {
    for (size_t i = 0; i < count; ++i) add_server();
    ASSERT_TRUE(create_spread_store(Client::places_of(servers)).ok());
  }
  void add_server() {
    owned.push_back(std::make_unique<PlaceServer>());
    servers.push_back(owned.back().get());
  }
  /// How many bytes a save of what is in the folder finds unknown; by a client of its own, as a new process is.
  uint64_t save(uint64_t step) {
    const Client client(servers);
    const auto report = test::save(*client.store, folder.path(), "run", step);
    EXPECT_TRUE(report.ok()) << report.status().to_string();
    return report.ok() ? report->record.new_bytes : UINT64_MAX;
  }

  static std::string id_text() { return UniqueId::random()->hex(); }

  std::string text;
  test::TempFolder folder;
  std::vector<std::unique_ptr<PlaceServer>> owned;
  std::vector<PlaceServer*> servers;
};

TEST_F(SpreadIndex, IsAskedForEachChunkAtTheOnePlaceOfItsScore) {
  make(3);
  EXPECT_GT(save(1), 1'000'000u);
  for (PlaceServer* server : servers) EXPECT_EQ(server->questions, 0) << "nothing is known yet";
  test::write_file(folder.path() + "/new.dat", text.substr(0, 700'000) + "else" + text.substr(700'000));
  save(2);
  std::map<uint64_t, int> asked;
  const ArenaSpread spread(3);
  for (uint32_t place = 0; place < 3; ++place) {
    EXPECT_GT(servers[place]->asked.size(), 10u) << place;
    for (const uint64_t prefix : servers[place]->asked) {
      EXPECT_EQ(spread.place_of_prefix(prefix), place);
      EXPECT_EQ(++asked[prefix], 1);
    }
  }
}

TEST_F(SpreadIndex, FindsAsMuchAsThatOfAFolder) {
  make(3);
  MemoryFileSystem disk;
  const auto in_folder = test::make_store(disk);
  for (uint64_t step = 1; step <= 4; ++step) {
    test::write_file(folder.path() + "/rank1.dat",
                     text.substr(0, step * 500'000) + "new" + text.substr(step * 500'000));
    const auto report = test::save(*in_folder, folder.path(), "run", step);
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(save(step), report->record.new_bytes) << step;
  }
  EXPECT_EQ(save(5), 0u);
}

TEST_F(SpreadIndex, KnowsTheChunksOfAWriterThatWasKilledBeforeItAddedThem) {
  make(2);
  save(1);
  std::vector<std::vector<std::string>> before;
  for (PlaceServer* server : servers) before.push_back(server->run_names());
  test::write_file(folder.path() + "/new.dat", "these are no digits" + text.substr(1'000'001));
  EXPECT_GT(save(2), 0u);
  for (size_t place = 0; place < 2; ++place) {
    for (const std::string& name : servers[place]->run_names()) {
      if (std::count(before[place].begin(), before[place].end(), name) > 0) continue;
      ASSERT_TRUE(servers[place]->disk.remove(join_path(kIndex, name)).ok());
    }
    // What it had begun is in nobody's way.
    ASSERT_TRUE(servers[place]->disk.create(join_path(kIndex, id_text() + ".run.part")).ok());
  }
  EXPECT_EQ(save(3), 0u);
}

TEST_F(SpreadIndex, HealsAtAPlaceThatHasLostIt) {
  make(3);
  save(1);
  test::write_file(folder.path() + "/new.dat", "these are no digits" + text.substr(1'000'001));
  save(2);
  const std::vector<std::string> others = servers[0]->run_names();
  const uint64_t entries = servers[1]->open().runs().entry_count();
  servers[1]->lose_index();
  EXPECT_EQ(save(3), 0u);
  EXPECT_EQ(servers[1]->open().runs().entry_count(), entries);
  const std::vector<std::string> now = servers[0]->run_names();
  EXPECT_TRUE(std::includes(now.begin(), now.end(), others.begin(), others.end()));
  EXPECT_EQ(now.size(), others.size() + 1) << "that of the third save, and none that was not missing";
}

TEST_F(SpreadIndex, StaysSmallAndForgetsWhatIsGone) {
  make(2);
  for (uint64_t step = 1; step <= 30; ++step) {
    test::write_file(folder.path() + "/rank0.dat", std::to_string(step) + text.substr(step * 50'000));
    test::write_file(folder.path() + "/rank1.dat", std::to_string(step) + "x");
    save(step);
    for (PlaceServer* server : servers) {
      server->merge();
      EXPECT_LE(server->run_names().size(), 10u);
    }
    if (step > 3) {
      const Client client(servers);
      ASSERT_TRUE(Catalog(*client.store).remove({"run", step - 3}).ok());
      PruneOptions options;
      options.live_share_min = 0.99;
      options.wait_seconds = 0;
      options.silence_seconds = 0;
      ASSERT_TRUE(prune_store(*client.store, options).ok());
      EXPECT_TRUE(test::is_whole(*client.store));
    }
  }
  EXPECT_EQ(save(31), 0u);
  const Client client(servers);
  const std::vector<ArenaId> present = client.store->list_arenas().value();
  for (PlaceServer* server : servers) {
    server->merge();
    const std::set<ArenaId> named = server->open().runs().covered();
    EXPECT_LE(named.size(), 3 * present.size()) << "60 arenas and more have come and gone";
    for (const ArenaId& arena : present) EXPECT_TRUE(named.contains(arena));
  }
}

TEST_F(SpreadIndex, GrowsWithTheStore) {
  make(1);
  save(1);
  test::write_file(folder.path() + "/new.dat", "these are no digits" + text.substr(1'000'001));
  save(2);
  for (const uint32_t count : {2u, 3u}) {
    add_server();
    ASSERT_TRUE(rebalance(Client::places_of(servers)).ok());
    for (uint32_t place = 1; place < count; ++place) {
      EXPECT_GT(servers[place]->open().runs().entry_count(), 10u) << "before anybody saves";
      for (const std::string& name : servers[place]->run_names()) {
        const auto table = read_run_table(servers[place]->backend, join_path(kIndex, name), servers[0]->store());
        EXPECT_EQ(table->scope, RunScope::of_place(place, count)) << "those of fewer places are gone";
      }
    }
    EXPECT_EQ(save(10 + count), 0u);
  }
}

TEST_F(SpreadIndex, TakesOverWhatServersHadOfTheirOwnArenas) {
  make(2);
  save(1);
  {
    const Client client(servers);
    for (PlaceServer* server : servers) {
      server->lose_index();
      server->index_own_arenas(*client.store);
    }
  }
  EXPECT_EQ(save(2), 0u);
  for (uint32_t place = 0; place < 2; ++place) {
    for (uint64_t step = 3; step <= 12; ++step) {
      test::write_file(folder.path() + "/extra.dat", std::to_string(place * 100 + step));
      save(place * 100 + step);
    }
    servers[place]->merge();
    const IndexFolder runs = servers[place]->open();
    EXPECT_LT(runs.runs().count(), 9u);
  }
  EXPECT_EQ(save(200), 0u);
}

TEST_F(SpreadIndex, IsNotHarmedByRunsThatLie) {
  make(2);
  save(1);
  const UniqueId store = servers[0]->store();
  // Out of order, of other chunks, of arenas and packs that there are not.
  const std::vector<ArenaId> arenas{UniqueId::random().value(), UniqueId::random().value()};
  uint64_t prefix = UINT64_MAX;
  for (int i = 0; i < 12; ++i) {
    ASSERT_TRUE(write_index_run(servers[0]->backend, join_path(kIndex, id_text() + ".run"), store,
                                {arenas, RunScope::of_place(0, 2), 100},
                                [&] {
                                  prefix = prefix * 0x9e3779b97f4a7c15u + 1;
                                  return ChunkIndexEntry{prefix, static_cast<uint32_t>(prefix >> 40), 1u << 31, 7};
                                })
                    .ok());
  }
  // It says that all of them are gone, though they are not; and of a place that there is not.
  const std::set<ArenaId> covered = servers[0]->open().runs().covered();
  const std::vector<ArenaId> all(covered.begin(), covered.end());
  const RunTable gone{all, RunScope::gone(), 0}, strange{all, RunScope::of_place(5, 9), 0};
  for (const RunTable& table : {gone, strange})
    ASSERT_TRUE(write_index_run(servers[0]->backend, join_path(kIndex, id_text() + ".run"), store, table, [] {
                  return ChunkIndexEntry();
                }).ok());
  servers[0]->merge();
  test::write_file(folder.path() + "/new.dat", "these are no digits" + text.substr(1'000'001));
  for (uint64_t step = 2; step <= 5; ++step) {
    save(step);
    servers[0]->merge();
  }
  EXPECT_EQ(save(6), 0u) << "it has healed";
  const Client client(servers);
  EXPECT_TRUE(test::is_whole(*client.store));
}

}  // namespace
}  // namespace varve
